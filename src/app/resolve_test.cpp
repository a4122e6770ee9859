#include "app/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "app/model_choice.h"
#include "app/presets.h"
#include "app/test_words.h"
#include "base/error.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

ModelFiles model_like(const std::string& id) {
  const Variant variant = find_variant(id).value();
  ModelFiles files;
  files.id = variant.id;
  files.defaults = variant.defaults;
  files.distilled = variant.distilled;
  return files;
}

struct Asked {
  std::string model = "klein-4b";
  std::vector<std::string> warnings;
  ResolvedRequest operator()(std::vector<std::string> words) {
    RequestSpec spec = spec_of_words(std::move(words));
    spec.prompt = "a fox";
    return resolve(spec, model_like(model), Task::Generate,
                   Log([this](LogLevel, const std::string& text) { warnings.push_back(text); }));
  }
  std::string refusal(std::vector<std::string> words) {
    try {
      (*this)(std::move(words));
    } catch (const Error& e) {
      return std::string(e.what()) + " | " + e.hint().plain();
    }
    return "";
  }
};

TEST(Request, UsesTheModelsDefaults) {
  const Request request = Asked{}({}).request;
  EXPECT_EQ(request.steps, 4);
  EXPECT_EQ(request.width, 1024);
  EXPECT_FALSE(request.cfg);
  EXPECT_LE(request.seed, 0xffffffffu);
}

TEST(Request, WatermarksNeedALargeImage) {
  Asked ask;
  EXPECT_TRUE(ask({}).request.watermark.empty());
  EXPECT_EQ(ask({"--watermark", "a5"}).request.watermark.size(), 8u);
  EXPECT_EQ(ask({"--watermark", "a5"}).record.request.watermark, "a5");
  EXPECT_TRUE(ask.warnings.empty());
  const ResolvedRequest small = ask({"--watermark", "flux", "--size", "240x256"});
  EXPECT_TRUE(small.request.watermark.empty());
  EXPECT_FALSE(small.record.request.watermark);
  ASSERT_EQ(ask.warnings.size(), 1u);
  EXPECT_THAT(ask.warnings[0], HasSubstr("too small for a watermark"));
  EXPECT_THAT(ask.refusal({"--watermark", "fluxx"}), HasSubstr("2 to 16 hexadecimal digits"));
}

TEST(Request, GuidanceIsLockedOnDistilledModels) {
  Asked asked;
  const std::string message = asked.refusal({"-g", "4"});
  EXPECT_THAT(message, HasSubstr("no guidance"));
  EXPECT_THAT(message, HasSubstr("cfg=X"));
  EXPECT_THAT(message, HasSubstr("base"));
  EXPECT_EQ(asked({"-g", "1"}).request.cfg, std::nullopt);
  EXPECT_EQ(asked({"--cfg", "3"}).request.cfg, 3.0);
  EXPECT_TRUE(asked.warnings.empty());
  EXPECT_EQ(asked({"--cfg-scale", "7"}).request.cfg, std::nullopt);
  EXPECT_EQ(asked.warnings.size(), 1u);
}

TEST(Request, GuidanceOfBaseModelsIsASecondPass) {
  Asked asked{"klein-base-4b"};
  EXPECT_EQ(asked({}).request.cfg, 4.0);
  EXPECT_EQ(asked({"-g", "2.5"}).request.cfg, 2.5);
  EXPECT_EQ(asked({"-g", "1"}).request.cfg, std::nullopt);
  EXPECT_EQ(asked({"--cfg-scale", "7"}).request.cfg, 7.0);
  EXPECT_EQ(asked({"--cfg", "3"}).record.request.guidance, 3.0);
}

TEST(Request, GuidanceOfDevIsAnInput) {
  Asked asked{"dev"};
  EXPECT_EQ(asked({"-g", "2.5"}).request.guidance, 2.5);
  EXPECT_EQ(asked({"-g", "2.5"}).request.cfg, std::nullopt);
  EXPECT_TRUE(asked({}).record.embedded_guidance);
  EXPECT_EQ(asked({"--cfg", "3"}).request.cfg, 3.0);
}

TEST(Request, NegativePromptWithoutGuidanceIsAWarning) {
  Asked asked;
  asked({"-n", "dark"});
  ASSERT_EQ(asked.warnings.size(), 1u);
  EXPECT_THAT(asked.warnings[0], HasSubstr("negative prompt"));
}

TEST(Request, OptionsWithoutAnEffectAreAWarning) {
  Asked asked{"klein-base-4b"};
  asked({"--context", "none"});
  ASSERT_EQ(asked.warnings.size(), 1u);
  EXPECT_THAT(asked.warnings[0], HasSubstr("--context none has no effect"));
  asked({"--no-negative-refs"});
  ASSERT_EQ(asked.warnings.size(), 2u);
  EXPECT_THAT(asked.warnings[1], HasSubstr("--no-negative-refs has no effect: there are no reference images"));
  RequestSpec configured = spec_of_words({"--context", "none", "--no-negative-refs"});
  configured.prompt = "a fox";
  configured.defaults = {"context", "no_negative_refs"};
  const Log log([&](LogLevel, const std::string& text) { ADD_FAILURE() << text; });
  resolve(configured, model_like("klein-base-4b"), Task::Generate, log);
}

TEST(Request, SeedsAreLimited) {
  Asked asked;
  EXPECT_EQ(asked({"-S", "9223372036854775807"}).request.seed, 9223372036854775807u);
  EXPECT_THAT(asked.refusal({"-S", "9223372036854775807", "-b", "2"}), HasSubstr("2^63-1"));
  EXPECT_THAT(asked.refusal({"-S", "-2"}), HasSubstr("--seed"));
  EXPECT_THAT(asked.refusal({"-S", "9223372036854775808"}), HasSubstr("--seed"));
  EXPECT_LE(asked({"-S", "-1"}).request.seed, 0xffffffffu);
}

TEST(Request, StepsBeyondTheDistilledOnesAreAWarning) {
  Asked asked;
  EXPECT_EQ(asked({"-s", "8"}).request.steps, 8);
  EXPECT_EQ(asked.warnings.size(), 1u);
  EXPECT_THAT(asked.refusal({"-s", "257"}), HasSubstr("257 steps; the limit is 256"));
}

TEST(Request, AListOfSigmasCountsItsSteps) {
  EXPECT_EQ(Asked{"klein-base-4b"}({"--schedule", "sigmas:1,0.7,0.3"}).request.steps, 3);
}

TEST(Request, SettingsAreReadFromAnImage) {
  Asked asked{"klein-base-4b"};
  const ResolvedRequest first =
      asked({"-g", "2.5", "-S", "7", "--size", "512x256", "-s", "9", "--shift", "2", "--noise", "grid", "-n", "dark"});
  const ResolvedRequest again = resolve(spec_of_record(first.record), model_like("klein-base-4b"));
  EXPECT_EQ(to_json(again.record), to_json(first.record));
  EXPECT_FALSE(spec_of_record(first.record, false).seed);
  EXPECT_EQ(spec_of_record(asked({"-g", "0"}).record).guidance, 0.0);  // not the default of the model
}

TEST(Request, WhatChangesThePixelsIsRecorded) {
  Asked asked;
  const RequestSpec plain = asked({"--vae-tile", "auto", "--lora-mode", "merge"}).record.request;
  EXPECT_FALSE(plain.vae_tile);
  EXPECT_FALSE(plain.lora_mode) << "nothing is merged without an adapter";
  EXPECT_FALSE(asked({"--vae-tile", "off"}).record.request.vae_tile);
  EXPECT_FALSE(asked({"--lora", "a.safetensors", "--lora-mode", "runtime"}).record.request.lora_mode);
  const GenerationRecord tiled = asked({"--vae-tile", "256", "--lora", "a.safetensors", "--lora-mode", "merge"}).record;
  const RequestSpec again = spec_of_record(record_from_json(to_json(tiled)));
  EXPECT_EQ(again.vae_tile, "256");
  EXPECT_EQ(again.lora_mode, "merge");
}

// Programs that did not record it computed attention in 16 bits.
TEST(Request, AttentionOfOlderImagesIsNotInEightBits) {
  GenerationRecord record = Asked{"klein-base-4b"}({}).record;
  record.quant = "fp8";
  EXPECT_EQ(spec_of_record(record).attention, "bf16");
  record.request.attention = "fp8";
  EXPECT_EQ(spec_of_record(record).attention, "fp8");
  record.request.attention.reset();
  record.quant = "bf16";
  EXPECT_FALSE(spec_of_record(record).attention);
}

TEST(QualityPreset, SuitsTheModel) {
  EXPECT_EQ(quality_preset("draft", model_like("klein-4b")).steps, 4);
  EXPECT_EQ(quality_preset("draft", model_like("klein-4b")).width, 512);
  EXPECT_EQ(quality_preset("best", model_like("klein-4b")).steps, 8);
  EXPECT_EQ(quality_preset("draft", model_like("klein-base-4b")).steps, 20);
  EXPECT_EQ(quality_preset("best", model_like("klein-base-4b")).steps, 50);
  ModelFiles pico;
  pico.bundled = true;
  pico.distilled = false;
  pico.defaults.steps = 20;
  pico.defaults.width = pico.defaults.height = 128;
  EXPECT_EQ(quality_preset("draft", pico).steps, 10);
  EXPECT_EQ(quality_preset("standard", pico).steps, 20);
  EXPECT_EQ(quality_preset("best", pico).steps, 40);
  EXPECT_EQ(quality_preset("draft", pico).width, 128);
}

TEST(Styles, FilesAddToTheBuiltInOnes) {
  AppContext context;
  context.project = {"flux2.toml", {{"styles.mine", {"{prompt} in red"}}}};
  context.user = {"config.toml", {{"styles.mine", {"other"}}, {"styles.tail", {"in blue"}}}};
  const Styles styles = all_styles(context);
  EXPECT_EQ(apply_style(styles, "mine", "a cat"), "a cat in red");
  EXPECT_EQ(apply_style(styles, "tail", "a cat"), "a cat, in blue");
  EXPECT_NE(apply_style(styles, "photo", "a cat").find("photograph of a cat"), std::string::npos);
  EXPECT_THROW(apply_style(styles, "phto", "a cat"), Error);
}

TEST(Licence, IsThatOfThePublishedModel) {
  ModelFiles model;
  model.id = "flux.2-klein-9b";
  EXPECT_NE(licence_of(model, {}).find("non-commercial"), std::string::npos);
  model.id = "my own";
  EXPECT_EQ(licence_of(model, {}), "");
}

}  // namespace
}  // namespace flux2
