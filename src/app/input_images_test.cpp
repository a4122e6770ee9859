#include "app/input_images.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "app/resolve.h"
#include "app/test_words.h"
#include "base/error.h"
#include "image/write_image.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class References : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const std::string& name, int width, int height) const {
    Image image(width, height, 3);
    for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = static_cast<uint8_t>(i * 7);
    save_image(folder_ / name, encode_png(image));
    return (folder_ / name).string();
  }
  ResolvedRequest ask(std::vector<std::string> words) const {
    RequestSpec spec = spec_of_words(std::move(words));
    spec.prompt = "a fox";
    return resolve(spec, ModelFiles{});
  }
  std::string refusal(std::vector<std::string> words) const {
    try {
      ask(std::move(words));
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("references-" + std::to_string(::getpid()));
};

TEST_F(References, KeepTheirOrderAndNames) {
  const std::string a = file("a.png", 96, 64), b = file("b.png", 64, 80), c = file("c.png", 64, 64);
  const ResolvedRequest resolved = ask({"-i", a, "-r", b, "--input", c});
  ASSERT_EQ(resolved.request.references.size(), 3u);
  EXPECT_EQ(resolved.request.references[1]->height, 80);
  EXPECT_EQ(resolved.request.reference_tokens(), 6 * 4 + 4 * 5 + 4 * 4);
  EXPECT_EQ(resolved.record.kind, "edit");
  EXPECT_EQ(resolved.record.references[1].name, "b.png");
  EXPECT_EQ(resolved.record.references[1].sha256.size(), 64u);
}

TEST_F(References, DecideTheSizeUnlessOneIsGiven) {
  const std::string a = file("a.png", 100, 130), b = file("b.png", 64, 80);
  const auto size = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"-i", a, "-i", b});
    const Request request = ask(words).request;
    return std::pair(request.width, request.height);
  };
  EXPECT_EQ(size({}), std::pair(96, 128));
  EXPECT_EQ(size({"--match", "2"}), std::pair(64, 80));
  EXPECT_EQ(size({"--match", "off"}), std::pair(1024, 1024));
  EXPECT_EQ(size({"--size", "256"}), std::pair(256, 256));
  EXPECT_THAT(refusal({"--match", "1"}), HasSubstr("no reference"));
  EXPECT_THAT(refusal({"-i", a, "--match", "2"}), HasSubstr("reference 2 does not exist; the number of references is 1"));
}

TEST_F(References, AMatchAndASizeContradictEachOther) {
  const std::string a = file("a.png", 96, 128);
  EXPECT_EQ(refusal({"-i", a, "--match", "1", "--size", "256"}), "--match 1 and --size both set the size of the image");
  EXPECT_EQ(refusal({"-i", a, "--match", "1", "--height", "256"}), "--match 1 and --height both set the size of the image");
  // Defaults, such as configuration and the record of an image that is taken as a pattern, give way to what is asked for.
  const auto width = [&](std::vector<std::string> words, std::vector<std::string> defaults) {
    SettingLayer below = layer_of_words(defaults);
    for (auto& [name, setting] : below) setting.is_default = true;
    Settings settings;
    settings.add(layer_of_words(words));
    settings.add(below);
    return resolve(spec_of(settings), ModelFiles{}).request.width;
  };
  EXPECT_EQ(width({"-i", a, "--match", "1"}, {"--size", "256"}), 96);
  EXPECT_EQ(width({"-i", a, "--size", "256"}, {"--match", "1"}), 256);
}

TEST_F(References, AreScaledToTheLimit) {
  const std::string a = file("a.png", 512, 512);
  const auto width = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"-i", a});
    return ask(words).request.references[0]->width;
  };
  EXPECT_EQ(width({}), 512);
  EXPECT_EQ(width({"--ref-pixels", "65536"}), 256);
  EXPECT_EQ(width({"--ref-pixels", "256x256"}), 256);
  EXPECT_EQ(width({"--ref-pixels", "65536", "--no-resize-ref"}), 512);
  EXPECT_THAT(refusal({"-i", a, "--ref-pixels", "12"}), HasSubstr("--ref-pixels"));
  EXPECT_THAT(refusal({"-i", a, "--ref-prep", "mine"}), HasSubstr("ours, bfl, diffusers"));
}

TEST_F(References, AreRejectedWithOneSentence) {
  EXPECT_THAT(refusal({"-i", file("s.png", 63, 100)}), HasSubstr("s.png: a reference of 63x100 is too small"));
  EXPECT_THAT(refusal({"-i", file("l.png", 1000, 100)}), HasSubstr("l.png: a reference of 1000x100 is too elongated"));
  EXPECT_THAT(refusal({"-i", (folder_ / "no.png").string()}), HasSubstr("no.png"));
  EXPECT_THAT(refusal({"-i", "https://example.org/a.png"}), HasSubstr("an address"));
  std::vector<std::string> many;
  const std::string a = file("a.png", 64, 64);
  for (int i = 0; i < 17; ++i) many.insert(many.end(), {"-i", a});
  EXPECT_THAT(refusal(many), HasSubstr("17 references; the limit is 16"));
}

TEST_F(References, FirstMayBeTheStartImage) {
  const std::string a = file("a.png", 100, 130), b = file("b.png", 64, 80);
  const ResolvedRequest resolved = ask({"-i", a, "-i", b, "--strength", "0.6"});
  ASSERT_TRUE(resolved.request.canvas);
  EXPECT_EQ(resolved.request.canvas->strength, 0.6);
  EXPECT_EQ(resolved.request.canvas->picture->width, 96);
  EXPECT_EQ(resolved.request.canvas->picture->height, 128);
  EXPECT_EQ(resolved.request.references.size(), 2u);
  EXPECT_EQ(resolved.record.request.strength, 0.6);
  EXPECT_EQ(ask({"-i", a, "-i", b, "--strength", "0.6", "--context", "none"}).request.references.size(), 1u);
  EXPECT_FALSE(ask({"-i", a, "--strength", "1"}).request.canvas);
  EXPECT_THAT(refusal({"--strength", "0.5"}), HasSubstr("no image to start from"));
  EXPECT_THAT(refusal({"-i", a, "--strength", "1.5"}), HasSubstr("from 0 to 1"));
}

TEST_F(References, OptionsAboutThemWarnWithoutAnEffect) {
  const std::string a = file("a.png", 320, 240);
  const auto warnings = [&](std::vector<std::string> words, Task task = Task::Generate) {
    words.insert(words.end(), {"-i", a});
    std::string all;
    const Log log([&](LogLevel, const std::string& text) { all += text + "\n"; });
    resolve(spec_of_words(words), ModelFiles{}, task, log);
    return all;
  };
  EXPECT_THAT(warnings({"--context", "none"}), HasSubstr("--context none has no effect"));
  EXPECT_THAT(warnings({"--context", "none", "--strength", "0.5"}), testing::Not(HasSubstr("no effect")));
  EXPECT_THAT(warnings({"--context", "none", "--mask-box", "0,0,80,80"}, Task::Inpaint), testing::Not(HasSubstr("no effect")));
  EXPECT_THAT(warnings({"--no-negative-refs"}), HasSubstr("it needs true guidance"));
  EXPECT_THAT(warnings({"--no-negative-refs", "--cfg", "3"}), testing::Not(HasSubstr("no effect")));
  EXPECT_THAT(warnings({"--no-negative-refs", "--cfg", "3", "--mask-box", "0,0,80,80"}, Task::Inpaint),
              testing::Not(HasSubstr("no effect")))
      << "the canvas is a reference";
}

TEST_F(References, SamplersAreChosenByName) {
  EXPECT_EQ(ask({"--sampler", "heun"}).request.sampler, Sampler::Heun);
  EXPECT_EQ(ask({"--sampler", "dpmpp2m"}).record.request.sampler, "dpmpp2m");
  EXPECT_THAT(refusal({"--sampler", "karras"}), HasSubstr("euler, heun, dpmpp2m"));
}

TEST_F(References, AreProcessedOnceByKvModels) {
  const std::string a = file("a.png", 64, 64);
  const auto reuses = [&](const std::string& how, bool kv, bool with_reference) {
    RequestSpec spec;
    spec.ref_kv = how;
    if (with_reference) spec.input = {a};
    int warnings = 0;
    ModelFiles model;
    model.kv = kv;
    const Request request = resolve(spec, model, Task::Generate, Log([&](LogLevel, const std::string&) { ++warnings; })).request;
    EXPECT_EQ(warnings, with_reference && request.reuse_reference_keys != kv) << how << kv;
    return request.reuse_reference_keys;
  };
  EXPECT_TRUE(reuses("auto", true, true));
  EXPECT_FALSE(reuses("auto", true, false));
  EXPECT_FALSE(reuses("auto", false, true));
  EXPECT_TRUE(reuses("on", false, true));
  EXPECT_FALSE(reuses("off", true, true));
}

TEST_F(References, AreReadOnce) {
  const std::string a = file("a.png", 64, 64);
  RequestSpec spec;
  spec.input = {a, a};
  InputImages images;
  const auto first = images.references(spec), second = images.references(spec);
  EXPECT_EQ(first[0].prepared, first[1].prepared);
  EXPECT_EQ(first[0].prepared, second[0].prepared);
}

}  // namespace
}  // namespace flux2
