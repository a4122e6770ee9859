#include "app/resolve_image_prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "app/model_choice.h"
#include "app/picture_maker.h"
#include "base/error.h"
#include "image/write_image.h"
#include "tests/support/paths.h"
#include "tests/support/random_image_prompt.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ImagePromptsOf : public testing::Test {
 protected:
  ImagePromptsOf() {
    fs::create_directories(folder_);
    context_.environment = [this](const char* name) -> const char* {
      const std::string_view wanted(name);
      return wanted == "FLUX2_HOME" ? home_.c_str() : wanted == "FLUX2_BUNDLED" ? bundled_.c_str() : nullptr;
    };
    context_.log = Log([this](LogLevel level, const std::string& text) {
      if (level == LogLevel::Warning) warnings_.push_back(text);
    });
    write_random_clip(folder_ / "clip", *synthetic_clip("clip-tiny"));
    spec_.prompt = "a field";
    spec_.width = spec_.height = 64;
    spec_.steps = 2, spec_.seed = 7;
    spec_.device = "cpu";
    spec_.image_prompt_adapter =
        test::write_random_image_prompt(folder_ / "adapter.safetensors", test::pico_image_prompt()).string();
    spec_.image_prompt_encoder = (folder_ / "clip").string();
    model_ = choose_model(spec_, context_);
  }
  ~ImagePromptsOf() override { fs::remove_all(folder_); }

  std::string image(const std::string& name, uint8_t red) const {
    Image picture(40, 30, 3);
    for (int y = 0; y < 30; ++y)
      for (int x = 0; x < 40; ++x) picture.at(x, y)[0] = red, picture.at(x, y)[1] = static_cast<uint8_t>(6 * x);
    save_image(folder_ / name, encode_png(picture));
    return (folder_ / name).string();
  }
  ResolvedRequest ask() {
    InputImages images(context_.log);
    ResolvedRequest resolved = resolve(spec_, model_, Task::Generate, context_.log, &images);
    if (at_zero_) resolved.request.references_at_zero = true;
    resolve_image_prompts(spec_, model_, context_, context_.log, images, resolved);
    return resolved;
  }
  std::string refusal() {
    try {
      ask();
    } catch (const Error& e) {
      return std::string(e.what()) + " | " + e.hint().plain();
    }
    return "";
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("image-prompts-" + std::to_string(::getpid()));
  std::string home_ = (folder_ / "home").string(), bundled_ = test::pico_folder();
  AppContext context_;
  RequestSpec spec_;
  ModelFiles model_;
  bool at_zero_ = false;
  std::vector<std::string> warnings_;
};

TEST_F(ImagePromptsOf, AreReadWithAdapterAndEncoder) {
  spec_.image_prompt = {image("a.png", 200) + ":0.5:0-0.5", image("b.png", 10)};
  const ResolvedRequest resolved = ask();
  ASSERT_EQ(resolved.request.image_prompts.size(), 2u);
  EXPECT_EQ(resolved.request.image_prompts[0].strength, 0.5);
  EXPECT_EQ(resolved.request.image_prompts[0].to, 0.5);
  EXPECT_EQ(resolved.request.image_prompts[0].feature.size(), 64u) << "a forecast needs its width";
  EXPECT_EQ(resolved.image_prompts.encoder.filename(), "model.safetensors");
  EXPECT_EQ(resolved.record.image_prompts[1].picture.name, "b.png");
  EXPECT_EQ(resolved.record.image_prompt_adapter.name, "adapter");
  EXPECT_EQ(resolved.record.image_prompt_encoder.name, "clip");
}

TEST_F(ImagePromptsOf, StrengthZeroNeedsNothing) {
  spec_.image_prompt = {"lost.png:0"};
  spec_.image_prompt_adapter.reset(), spec_.image_prompt_encoder.reset();
  const ResolvedRequest resolved = ask();
  EXPECT_TRUE(resolved.request.image_prompts.empty());
  EXPECT_TRUE(resolved.image_prompts.empty());
  EXPECT_TRUE(resolved.record.image_prompts.empty());
}

TEST_F(ImagePromptsOf, RefusesWhatDoesNotFit) {
  const std::string a = image("a.png", 200);
  spec_.image_prompt = {a};
  RequestSpec good = spec_;

  spec_.image_prompt_adapter.reset();
  EXPECT_THAT(refusal(), HasSubstr("needs an image-prompt adapter that was trained for this model"));
  spec_.image_prompt_adapter = "unknown";
  EXPECT_THAT(refusal(), HasSubstr("there is no image-prompt adapter named unknown"));

  ImagePromptConfig other = test::pico_image_prompt();
  other.hidden = 384;
  spec_.image_prompt_adapter = test::write_random_image_prompt(folder_ / "wide.safetensors", other).string();
  EXPECT_THAT(refusal(), HasSubstr("was trained for a transformer of width 384"));

  other = test::pico_image_prompt();
  other.feature_width = 48;  // as the projected vector of this encoder, but it says pooled
  spec_.image_prompt_adapter = test::write_random_image_prompt(folder_ / "narrow.safetensors", other).string();
  EXPECT_THAT(refusal(), HasSubstr("the encoder has vectors of 64 values, but the adapter reads 48"));
  other.feature = ImageFeature::Projected;
  spec_.image_prompt_adapter = test::write_random_image_prompt(folder_ / "projected.safetensors", other).string();
  EXPECT_EQ(refusal(), "");

  const float zero = 0;
  save_tensors(folder_ / "xlabs.safetensors",
               {{"ip_adapter_proj_model.proj.weight", Tensor::host_copy(&zero, DType::F32, {1, 1})}});
  spec_.image_prompt_adapter = (folder_ / "xlabs.safetensors").string();
  EXPECT_THAT(refusal(), HasSubstr("an IP-Adapter for FLUX.1"));

  spec_ = good;
  spec_.image_prompt_encoder.reset();
  EXPECT_THAT(refusal(), HasSubstr("no registered image encoder has vectors of 64 values"));
  spec_ = good;
  spec_.image_prompt = std::vector<std::string>(17, a);
  EXPECT_THAT(refusal(), HasSubstr("17"));
  spec_ = good;
  at_zero_ = true;
  EXPECT_THAT(refusal(), HasSubstr("references at time 0"));
  at_zero_ = false;
  spec_.image_prompt_adapter =
      test::write_random_image_prompt(folder_ / "tokens.safetensors", test::pico_image_prompt(ImagePromptForm::Tokens)).string();
  spec_.region = {"a cat@0,0,32,32"};
  EXPECT_THAT(refusal(), HasSubstr("cannot be combined with prompts for regions"));
}

TEST_F(ImagePromptsOf, AnAdapterWithoutImagePromptsIsNoticed) {
  ask();
  EXPECT_THAT(warnings_, testing::Contains(HasSubstr("no image prompt")));
}

TEST_F(ImagePromptsOf, VectorsAreKept) {
  const auto make = [&](PictureMaker& maker, const ResolvedRequest& request) {
    Image made;
    maker.make(request, [&](const Picture& picture, const GenerationRecord& record) {
      made = picture.decoded.rgb8(Rounding::Nearest);
      EXPECT_EQ(record.image_prompt_adapter.sha256.empty(), request.image_prompts.empty());
    });
    return made;
  };
  const ResolvedRequest plain = [&] {
    RequestSpec asked = spec_;
    spec_.image_prompt_adapter.reset(), spec_.image_prompt_encoder.reset();
    ResolvedRequest resolved = ask();
    spec_ = asked;
    return resolved;
  }();
  spec_.image_prompt = {image("a.png", 200)};
  const ResolvedRequest first = ask();
  fs::copy_file(folder_ / "a.png", folder_ / "copy.png");
  spec_.image_prompt = {(folder_ / "copy.png").string(), image("b.png", 10)};
  const ResolvedRequest second = ask();
  EXPECT_TRUE(can_make_together(plain, plain));
  EXPECT_FALSE(can_make_together(first, first));

  PictureMaker maker(context_, model_, spec_);
  maker.load({&first, 1});
  const Image without = make(maker, plain), with = make(maker, first);
  EXPECT_NE(with, without);
  EXPECT_EQ(maker.image_prompt_features().computed(), 1);
  EXPECT_NE(make(maker, second), with);
  EXPECT_EQ(maker.image_prompt_features().computed(), 2) << "the copy has the content of the first image";
  EXPECT_EQ(make(maker, first), with);
  EXPECT_EQ(make(maker, plain), without) << "an adapter of earlier requests leaves no trace";
  EXPECT_EQ(maker.image_prompt_features().computed(), 2);
}

}  // namespace
}  // namespace flux2
