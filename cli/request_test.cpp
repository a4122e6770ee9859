#include "cli/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "cli/prompts.h"
#include "cli/quality.h"

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
    Settings settings;
    settings.add(layer_of(parse_arguments(generate_options(), foreign_options(), std::move(words))));
    return resolve_request(settings, model_like(model), "a fox",
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

TEST(Request, TakesTheModelsDefaults) {
  const Request request = Asked{}({}).request;
  EXPECT_EQ(request.steps, 4);
  EXPECT_EQ(request.width, 1024);
  EXPECT_FALSE(request.cfg);
  EXPECT_LE(request.seed, 0xffffffffu);
}

TEST(Request, GuidanceIsLockedOnDistilledModels) {
  Asked asked;
  const std::string message = asked.refusal({"-g", "4"});
  EXPECT_THAT(message, HasSubstr("no guidance"));
  EXPECT_THAT(message, HasSubstr("--cfg"));
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
  EXPECT_EQ(asked({"--cfg", "3"}).record.guidance, 3.0);
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

TEST(Request, SeedsHaveTheirRange) {
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
  EXPECT_THAT(asked.refusal({"-s", "257"}), HasSubstr("1 to 256"));
}

TEST(Request, AListOfSigmasCountsItsSteps) {
  EXPECT_EQ(Asked{"klein-base-4b"}({"--schedule", "sigmas:1,0.7,0.3"}).request.steps, 3);
}

TEST(Request, APictureGivesItsSettingsBack) {
  Asked asked{"klein-base-4b"};
  const ResolvedRequest first =
      asked({"-g", "2.5", "-S", "7", "--size", "512x256", "-s", "9", "--shift", "2", "--noise", "grid", "-n", "dark"});
  Settings settings;
  settings.add(layer_of_record(first.record, true, "x.png"));
  const ResolvedRequest again = resolve_request(settings, model_like("klein-base-4b"), settings.text("prompt"), {});
  EXPECT_EQ(to_json(again.record), to_json(first.record));
  EXPECT_FALSE(layer_of_record(first.record, false, "x.png").contains("seed"));
}

TEST(QualityPreset, SuitsTheModel) {
  const auto value = [](const SettingLayer& layer, const char* name) { return layer.at(name).values.back(); };
  EXPECT_EQ(value(quality_preset("draft", model_like("klein-4b")), "steps"), "4");
  EXPECT_EQ(value(quality_preset("draft", model_like("klein-4b")), "width"), "512");
  EXPECT_EQ(value(quality_preset("best", model_like("klein-4b")), "steps"), "8");
  EXPECT_EQ(value(quality_preset("draft", model_like("klein-base-4b")), "steps"), "20");
  EXPECT_EQ(value(quality_preset("best", model_like("klein-base-4b")), "steps"), "50");
  ModelFiles pico;
  pico.bundled = true;
  pico.distilled = false;
  pico.defaults.steps = 20;
  pico.defaults.width = pico.defaults.height = 128;
  EXPECT_EQ(value(quality_preset("draft", pico), "steps"), "10");
  EXPECT_EQ(value(quality_preset("standard", pico), "steps"), "20");
  EXPECT_EQ(value(quality_preset("best", pico), "steps"), "40");
  EXPECT_EQ(value(quality_preset("draft", pico), "width"), "128");
}

TEST(PromptFile, LinesCarryTheirOwnOptions) {
  const auto prompts =
      parse_prompt_file("# comment\n\na fox --w 512 --h 256 --d 7 --n dark, grey --o x.png\r\nplain\n");
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[1].prompt, "plain");
  EXPECT_EQ(prompts[1].settings.size(), 0u);
}

TEST(PromptFile, OptionsAreRead) {
  const auto prompts = parse_prompt_file("a fox-hound --w 512 --d 7 --n dark, grey\n");
  ASSERT_EQ(prompts.size(), 1u);
  EXPECT_EQ(prompts[0].prompt, "a fox-hound");
  EXPECT_EQ(prompts[0].settings.at("width").values.back(), "512");
  EXPECT_EQ(prompts[0].settings.at("negative").values.back(), "dark, grey");
  EXPECT_THROW(parse_prompt_file("a --zz 4"), Error);
  EXPECT_THROW(parse_prompt_file("a --w"), Error);
  EXPECT_EQ(parse_prompt_file("a --ci x.png --ci y.png --w 64")[0].settings.at("input").values.size(), 2u);
}

}  // namespace
}  // namespace flux2
