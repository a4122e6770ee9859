#include "app/extra_passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "app/picture_maker.h"
#include "app/prepare.h"
#include "app/test_words.h"
#include "base/error.h"
#include "image/mask.h"
#include "image/resize.h"
#include "image/write_image.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ExtraPassesOnPico : public testing::Test {
 protected:
  ExtraPassesOnPico() {
    fs::create_directories(folder_);
    context_.environment = [this](const char* name) -> const char* {
      const std::string_view wanted(name);
      return wanted == "FLUX2_HOME" ? home_.c_str() : wanted == "FLUX2_BUNDLED" ? bundled_.c_str() : nullptr;
    };
  }
  ~ExtraPassesOnPico() override { fs::remove_all(folder_); }

  ResolvedRequest ask(std::vector<std::string> words, Task task = Task::Generate) {
    RequestSpec spec = spec_of_words(std::move(words));
    spec.prompt = "a large red circle in the center on a blue background";
    spec.seed = 1, spec.steps = 8, spec.device = "cpu";
    if (!model_) model_ = choose_model(spec, context_);
    return resolve(spec, *model_, task, context_.log);
  }
  std::string refusal(std::vector<std::string> words, Task task = Task::Generate) {
    try {
      ask(std::move(words), task);
    } catch (const Error& e) {
      return std::string(e.what()) + " | " + e.hint().plain();
    }
    return "";
  }
  Picture make(const ResolvedRequest& request) {
    PictureMaker maker(context_, *model_, request.spec);
    maker.load({&request, 1});
    std::vector<Picture> made;
    maker.make(request, [&](const Picture& picture, const GenerationRecord& record) {
      made.push_back(picture);
      record_ = record;
    });
    EXPECT_EQ(made.size(), static_cast<size_t>(request.request.batch));
    return made.back();
  }
  static Image image_of(const Picture& picture) { return picture.decoded.rgb8(Rounding::Nearest); }
  static double mean_difference(const Image& a, const Image& b) {
    EXPECT_EQ(a.pixels.size(), b.pixels.size());
    double sum = 0;
    for (size_t i = 0; i < a.pixels.size(); ++i) sum += std::abs(a.pixels[i] - b.pixels[i]);
    return sum / static_cast<double>(a.pixels.size());
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("passes-" + std::to_string(::getpid()));
  std::string home_ = (folder_ / "home").string(), bundled_ = test::pico_folder();
  AppContext context_;
  std::optional<ModelFiles> model_;
  GenerationRecord record_;
};

TEST_F(ExtraPassesOnPico, HiresKeepsTheImageAtALargerSize) {
  const Image small = image_of(make(ask({"--width", "96", "--height", "96"})));
  for (const char* method : {"image", "latents"}) {
    const Picture picture =
        make(ask({"--width", "96", "--height", "96", "--hires", "1.5", "--hires-strength", "0.25", "--hires-method", method}));
    const Image large = image_of(picture);
    EXPECT_EQ(large.width, 144);
    EXPECT_EQ(large.height, 144);
    EXPECT_EQ(picture.seed, 1u);
    // The same image: its layout and colours, not its details.
    EXPECT_LT(mean_difference(resize(large, 96, 96), small), 30) << method;
    EXPECT_GT(mean_difference(large, resize(small, 144, 144)), 0.5) << method;
    EXPECT_EQ(record_.request.hires, 1.5);
    EXPECT_EQ(record_.request.width, 96);
  }
}

TEST_F(ExtraPassesOnPico, EveryImageOfABatchHasItsPasses) {
  const Picture last = make(ask({"--width", "64", "--height", "64", "--hires", "2", "--batch", "2"}));
  EXPECT_EQ(last.index, 1);
  EXPECT_EQ(last.seed, 2u);
  EXPECT_EQ(image_of(last).width, 128);
}

TEST_F(ExtraPassesOnPico, ADetailPassKeepsEveryPixelOutsideItsMask) {
  const Image plain = image_of(make(ask({"--width", "128", "--height", "128"})));
  const Image detailed = image_of(make(ask({"--width", "128", "--height", "128", "--detail-box", "40,40,48,48"})));
  Image mask(128, 128, 1);
  add_box(mask, {40, 40, 48, 48});
  mask = feathered(grown(mask, 8), 8);
  int changed = 0;
  for (int y = 0; y < 128; ++y)
    for (int x = 0; x < 128; ++x) {
      const bool same = std::equal(plain.at(x, y), plain.at(x, y) + 3, detailed.at(x, y));
      ASSERT_TRUE(same || *mask.at(x, y) > 0) << x << "," << y;
      changed += !same;
    }
  EXPECT_GT(changed, 500);
  EXPECT_EQ(record_.request.detail_box, std::vector<std::string>{"40,40,48,48"});
  EXPECT_EQ(record_.request.detail_strength, 0.4);
}

TEST_F(ExtraPassesOnPico, AMaskOfAnotherSizeIsScaledAndRecorded) {
  Image mask(64, 64, 1);
  add_box(mask, {20, 20, 24, 24});
  const std::string path = (folder_ / "face.png").string();
  save_image(path, encode_png(mask));
  const ResolvedRequest request = ask({"--width", "64", "--height", "64", "--hires", "2", "--detail-mask", path});
  ASSERT_TRUE(request.passes.detail);
  EXPECT_EQ(request.passes.detail->mask->width, 128);
  EXPECT_EQ(request.record.mask_name, "face.png");
  EXPECT_FALSE(request.record.mask_sha256.empty());
}

TEST_F(ExtraPassesOnPico, AreKnownBeforeTheyRun) {
  const ResolvedRequest both = ask({"--width", "64", "--height", "64", "--hires", "2", "--detail-box", "40,40,16,16", "-b", "3"});
  const std::vector<Request> later = later_passes(both.request, both.passes);
  ASSERT_EQ(later.size(), 2u);
  EXPECT_EQ(later[0].width, 128);
  EXPECT_NEAR(later[1].width * later[1].height, 128 * 128, 0.3 * 128 * 128) << "a part has the pixels of the whole image";
  for (const Request& pass : later) {
    EXPECT_EQ(pass.batch, 1);
    ASSERT_TRUE(pass.canvas);
    EXPECT_LT(pass.sigmas().size(), both.request.sigmas().size()) << "only the last steps are made";
  }
  EXPECT_TRUE(later_passes(both.request, {}).empty());
}

TEST_F(ExtraPassesOnPico, WhatCannotWorkIsRefused) {
  EXPECT_THAT(refusal({"--hires-strength", "0.4"}), HasSubstr("there is no second pass"));
  EXPECT_THAT(refusal({"--detail-strength", "0.4"}), HasSubstr("no part of the image is selected"));
  EXPECT_THAT(refusal({"--detail-box", "900,900,10,10"}), HasSubstr("detail-box"));
  EXPECT_THAT(refusal({"--hires", "4", "--width", "2048", "--height", "2048"}), HasSubstr("hires"));
  EXPECT_THAT(refusal({"--detail-box", "0,0,9,9", "--output-type", "latent"}), HasSubstr("detail pass"));
  const std::string canvas = (folder_ / "canvas.png").string();
  save_image(canvas, encode_png(Image(128, 128, 3)));
  EXPECT_THAT(refusal({"-i", canvas, "--mask-box", "0,0,64,64", "--hires", "2"}, Task::Inpaint),
              HasSubstr("inpainting has no second pass"));
}

}  // namespace
}  // namespace flux2
