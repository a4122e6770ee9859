// The settings of an image against a configuration: what is taken from which.
#include "app/prepare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "app/test_words.h"
#include "base/error.h"
#include "image/write_image.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class SettingsOfAnImage : public testing::Test {
 protected:
  SettingsOfAnImage() {
    fs::create_directories(folder_);
    context_.environment = [this](const char* name) -> const char* {
      const std::string_view wanted(name);
      return wanted == "FLUX2_HOME" ? home_.c_str() : wanted == "FLUX2_BUNDLED" ? bundled_.c_str() : nullptr;
    };
  }
  ~SettingsOfAnImage() override { fs::remove_all(folder_); }

  std::string file(const std::string& name, const Image& image, const ImageMetadata& metadata = {}) const {
    save_image(folder_ / name, encode_png(image, metadata));
    return (folder_ / name).string();
  }
  // Prepares a run from the options of a request and those of a configuration. The prompt is that of the options.
  PreparedRun prepared(const std::vector<std::string>& words, const std::vector<std::string>& configured = {},
                       Task task = Task::Generate) {
    SettingLayer defaults = layer_of_words(configured);
    for (auto& [name, setting] : defaults) setting.is_default = true;
    settings_ = {};
    settings_.add(layer_of_words(words));
    settings_.add(std::move(defaults));
    task = take_settings_of_image(settings_, task, context_);
    const Setting* prompt = settings_.find("prompt");
    PromptLine line;
    line.prompt = prompt ? prompt->values.back() : "";
    line.literal = prompt && prompt->origin != "--prompt";
    return prepare(settings_, {line}, task, context_);
  }
  GenerationRecord record_of(const std::vector<std::string>& words, const std::vector<std::string>& configured = {},
                             Task task = Task::Generate) {
    return prepared(words, configured, task).requests.at(0).record;
  }
  // An image file with these settings.
  std::string image_of(const GenerationRecord& record) const {
    return file("made.png", Image(64, 64, 3), picture_metadata(record, {}, ImageFormat::Png));
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("prepare-" + std::to_string(::getpid()));
  std::string home_ = (folder_ / "home").string(), bundled_ = test::pico_folder();
  AppContext context_;
  Settings settings_;
};

const std::vector<std::string> kPlain = {"--prompt", "a fox", "-S", "3", "-s", "9", "--device", "cpu"};

std::vector<std::string> with(std::vector<std::string> words, const std::vector<std::string>& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(SettingsOfAnImage, AreNotChangedByAConfiguration) {
  const std::vector<std::string> configured = {
      "--hires", "2",   "--tile",  "x",   "--strength",      "0.5", "--negative", "dark", "--cfg",    "3",
      "--shift", "2",   "--cache", "0.2", "--style",         "oil", "--upsample", "http", "--preset", "best",
      "--quant", "fp8", "--match", "1",   "--time-rounding", "bfl", "--ref-prep", "bfl",  "--steps",  "30"};
  const GenerationRecord plain = record_of(kPlain);
  const std::string image = image_of(plain);
  const ResolvedRequest again = prepared({"--from", image, "--device", "cpu"}, configured).requests.at(0);
  EXPECT_EQ(to_json(again.record).dump(2), to_json(plain).dump(2));
  EXPECT_FALSE(again.spec.upsample);

  // What is asked for still changes it, and a new prompt has the configured style.
  const GenerationRecord asked = record_of({"--from", image, "--device", "cpu", "--tile", "y", "--style", "sketch"}, configured);
  EXPECT_EQ(asked.request.tile, "y");
  EXPECT_THAT(asked.prompt(), HasSubstr("pencil sketch of a fox"));
  EXPECT_FALSE(asked.request.hires);
  EXPECT_THAT(record_of({"--from", image, "--device", "cpu", "--prompt", "a cat"}, {"--style", "oil"}).prompt(),
              HasSubstr("oil painting of a cat"));
  // A configured watermark is for every image.
  const std::string large = image_of(record_of(with(kPlain, {"--size", "256"})));
  EXPECT_EQ(record_of({"--from", large, "--device", "cpu"}, {"--watermark", "a5"}).request.watermark, "a5");
}

TEST_F(SettingsOfAnImage, OfAnEditKeepTheirSizeAndTheirReferences) {
  const std::string photo = file("photo.png", Image(300, 200, 3));
  const std::vector<std::string> words =
      with(kPlain, {"-i", photo, "--size", "64", "--ref-pixels", "16384", "--ref-prep", "bfl", "--no-resize-ref"});
  const GenerationRecord edit = record_of(words, {}, Task::Edit);
  EXPECT_EQ(record_from_json(to_json(edit)).request.ref_pixels, "16384");
  const GenerationRecord again =
      record_of({"--from", image_of(edit), "--device", "cpu"}, {"--match", "1", "--preset", "best"}, Task::Edit);
  EXPECT_EQ(to_json(again).dump(2), to_json(edit).dump(2));
}

TEST_F(SettingsOfAnImage, OfInpaintingIncludeWhatTheMaskWasMadeFromAndTheSizeToWorkAt) {
  Image changed(256, 192, 3);
  for (int y = 100; y < 140; ++y) std::fill_n(changed.at(120, y), 3 * 40, uint8_t{200});
  const std::string canvas = file("canvas.png", Image(256, 192, 3)), other = file("changed.png", changed);
  const ResolvedRequest first =
      prepared(
          with(kPlain, {"-i", canvas, "--mask-from-diff", other, "--mask-box", "10,10,20,20", "--crop", "0", "--size", "128x96"}),
          {}, Task::Inpaint)
          .requests.at(0);
  EXPECT_EQ(first.request.width, 128);
  EXPECT_EQ(first.record.width(), 256);
  const std::string image = image_of(first.record);
  const ResolvedRequest again = prepared({"--from", image, "--device", "cpu"}).requests.at(0);
  EXPECT_EQ(to_json(again.record).dump(2), to_json(first.record).dump(2));
  EXPECT_EQ(again.request.width, 128);
  EXPECT_EQ(again.request.height, 96);
  EXPECT_EQ(again.request.canvas->mask, first.request.canvas->mask);
  EXPECT_EQ(to_json(first.record, true)["mask"]["difference"].count("name"), 0u);

  fs::rename(other, folder_ / "renamed.png");
  try {
    prepared({"--from", image, "--device", "cpu"});
    FAIL() << "the other image is gone";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::NotFound);
    EXPECT_THAT(e.what(), HasSubstr("made by comparing with the image changed.png, which is not beside it"));
  }
  const std::string renamed = (folder_ / "renamed.png").string();
  EXPECT_EQ(prepared({"--from", image, "--device", "cpu", "--mask-from-diff", renamed}).requests.at(0).request.width, 128);
}

TEST_F(SettingsOfAnImage, AreThoseOfOneImage) {
  const std::string image = image_of(record_of(kPlain));
  try {
    prepared({"--from", image, "--remix", image, "--device", "cpu"});
    FAIL() << "with the seed of the image, or with a new one?";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "--from and --remix both name an image to reuse");
  }
}

TEST_F(SettingsOfAnImage, SayThatTheModelWasUsedAsABaseModel) {
  const GenerationRecord record = record_of(with(kPlain, {"--base"}));
  EXPECT_EQ(to_json(record)["model"]["base"], true);
  const std::string image = image_of(record);
  EXPECT_EQ(prepared({"--from", image, "--device", "cpu"}).requests.at(0).spec.base, true);
  // Another model has nothing to do with it.
  EXPECT_FALSE(prepared({"--from", image, "--device", "cpu", "--model", bundled_}).requests.at(0).spec.base);
}

TEST_F(SettingsOfAnImage, NameItsDetailMask) {
  Image mask(64, 64, 1);
  for (int y = 20; y < 40; ++y) std::fill_n(mask.at(20, y), 20, uint8_t{255});
  const std::string path = file("face.png", mask);
  const std::string image = image_of(record_of(with(kPlain, {"--size", "64", "--detail-mask", path})));
  fs::remove(path);
  try {
    prepared({"--from", image, "--device", "cpu"});
    FAIL() << "the mask is gone";
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("made.png was made with the detail mask face.png, which is not beside it"));
    EXPECT_THAT(e.hint().plain(), HasSubstr("detail_mask=FILE"));
  }
}

}  // namespace
}  // namespace flux2
