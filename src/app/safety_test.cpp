#include "app/safety.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "app/install_model.h"
#include "app/picture_maker.h"
#include "app/prepare.h"
#include "base/error.h"
#include "hub/registry/registry.h"
#include "hub/registry/starter.h"
#include "hub/remote/source.h"
#include "hub/synth.h"
#include "image/write_image.h"
#include "tests/support/paths.h"
#include "tests/support/tiny_classifier.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using Text = SafetySettings::Text;
using Images = SafetySettings::Images;

class SafetyChecks : public testing::Test {
 protected:
  SafetyChecks() {
    fs::create_directories(folder_);
    context_.environment = [this](const char* name) -> const char* {
      const auto found = variables_.find(name);
      return found == variables_.end() ? nullptr : found->second.c_str();
    };
    variables_ = {{"FLUX2_HOME", (folder_ / "home").string()}, {"FLUX2_BUNDLED", test::pico_folder()}};
    context_.log = Log(
        [this](LogLevel level, const std::string& text) { (level == LogLevel::Warning ? warnings_ : infos_).push_back(text); });
    spec_.prompt = "a red circle";
    spec_.seed = 7;
    spec_.steps = 1;
    spec_.width = spec_.height = 64;
    spec_.device = "cpu";
    settings_.images = Images::Nsfw;
    models_.nsfw = [this](const Image&) {
      asked_.emplace_back("nsfw");
      return score_;
    };
    models_.prompt = [this](const std::string& prompt) {
      asked_.push_back("text: " + prompt);
      return YesNo{.yes = prompt == flagged_prompt_ ? 1.0f : 0.0f, .no = 0.5f};
    };
    models_.image = [this](const Image&) {
      asked_.emplace_back("mistral");
      return YesNo{.yes = image_flagged_ ? 1.0f : 0.0f, .no = 0.5f};
    };
  }
  ~SafetyChecks() override { fs::remove_all(folder_); }

  std::shared_ptr<Safety> safety() { return std::make_shared<Safety>(settings_, context_, models_); }
  ResolvedRequest resolved() { return resolve(spec_, model_of(), Task::Generate); }
  ModelFiles model_of() { return choose_model(spec_, context_); }

  // The sentence of a refusal; empty if the request passes.
  std::string refusal(Safety& safety, const ResolvedRequest& request) {
    try {
      safety.check_request(request, {});
    } catch (const Error& e) {
      return std::string(name_of(e.code())) + ": " + e.what();
    }
    return "";
  }
  static Image grey(int side, uint8_t level) {
    Image image(side, side, 3);
    std::fill(image.pixels.begin(), image.pixels.end(), level);
    return image;
  }
  Safety::Verdict verdict_on(Safety& safety, uint8_t level = 10) { return safety.judge_image(grey(8, level), spec_, {}); }

  // What a run with these checks delivers and shows, and how it ends.
  struct Run {
    std::vector<uint64_t> seeds;
    std::vector<Picture> pictures;
    std::vector<GenerationRecord> records;
    int previews = 0;
    std::string refusal;
  };
  Run run() {
    context_.safety = safety();
    const ResolvedRequest request = resolved();
    PictureMaker maker(context_, model_of(), spec_);
    maker.load({&request, 1});
    Run run;
    try {
      maker.make(
          request,
          [&](const Picture& picture, GenerationRecord record) {
            run.seeds.push_back(picture.seed);
            run.pictures.push_back(picture);
            run.records.push_back(std::move(record));
          },
          {}, [&](const Image&, const StepDone&) { ++run.previews; });
    } catch (const Error& e) {
      run.refusal = std::string(name_of(e.code())) + ": " + e.what();
    }
    return run;
  }

  fs::path folder_ = fs::path(testing::TempDir()) / ("safety-" + std::to_string(::getpid()));
  std::map<std::string, std::string> variables_;
  AppContext context_;
  RequestSpec spec_;
  SafetySettings settings_;
  SafetyModels models_;
  std::vector<std::string> asked_, warnings_, infos_;
  double score_ = 0.1;
  std::string flagged_prompt_ = "bad";
  bool image_flagged_ = false;
};

TEST_F(SafetyChecks, NothingIsOnByDefault) {
  EXPECT_EQ(Safety::open(context_), nullptr);
  const SafetySettings defaults = safety_settings(context_.environment, {});
  EXPECT_FALSE(defaults.is_on());
  EXPECT_EQ(defaults.nsfw_threshold, 0.85);
  EXPECT_EQ(defaults.check, SafetySettings::What{});
}

TEST_F(SafetyChecks, SettingsComeFromTheConfigurationAndTheEnvironment) {
  ConfigFile user{.path = "config.toml",
                  .values = {{"safety.text", {"qwen"}},
                             {"safety.image", {"nsfw+mistral"}},
                             {"safety.nsfw-threshold", {"0.5"}},
                             {"safety.nsfw-model", {"mine"}},
                             {"safety.check", {"prompt", "output"}},
                             {"safety.on-flag", {"blur"}},
                             {"safety.log", {"true"}}}};
  SafetySettings s = safety_settings(context_.environment, user);
  EXPECT_EQ(s.text, Text::Qwen);
  EXPECT_EQ(s.images, Images::NsfwAndMistral);
  EXPECT_EQ(s.nsfw_threshold, 0.5);
  EXPECT_EQ(s.nsfw_model, "mine");
  EXPECT_EQ(s.check, (SafetySettings::What{true, false, false, false, true}));
  EXPECT_EQ(s.on_flag, SafetySettings::OnFlag::Blur);
  EXPECT_TRUE(s.log);
  variables_["FLUX2_SAFETY_TEXT"] = "mistral";
  variables_["FLUX2_SAFETY_CHECK"] = "rewritten, canvas";
  s = safety_settings(context_.environment, user);
  EXPECT_EQ(s.text, Text::Mistral);
  EXPECT_EQ(s.check, (SafetySettings::What{false, true, false, true, false}));

  for (const auto& [key, value] : std::vector<std::pair<std::string, std::string>>{{"safety.text", "gpt"},
                                                                                   {"safety.image", "yes"},
                                                                                   {"safety.nsfw-threshold", "1.5"},
                                                                                   {"safety.on-flag", "delete"},
                                                                                   {"safety.check", "masks"}}) {
    try {
      safety_settings([](const char*) -> const char* { return nullptr; }, {.path = "config.toml", .values = {{key, {value}}}});
      ADD_FAILURE() << key;
    } catch (const Error& e) {
      EXPECT_THAT(e.what(), HasSubstr(key));
    }
  }
}

TEST_F(SafetyChecks, AProjectFileCannotChangeThem) {
  if (!toml_available()) GTEST_SKIP() << "built without TOML";
  const fs::path file = folder_ / "flux2.toml";
  std::ofstream(file) << "[safety]\nimage = \"off\"\ntext = \"off\"\nnsfw-threshold = 1.0\n[generate]\nsteps = 2\n";
  const ConfigFile project = read_project_config(file, {});
  EXPECT_THAT(project.refused, ElementsAre("safety.image", "safety.nsfw-threshold", "safety.text"));
  context_.project = project;
  context_.user = {.path = "config.toml", .values = {{"safety.image", {"nsfw"}}}};
  const auto opened = Safety::open(context_);
  ASSERT_NE(opened, nullptr);
  EXPECT_EQ(opened->settings().images, Images::Nsfw);
  EXPECT_EQ(opened->settings().nsfw_threshold, 0.85);
}

TEST_F(SafetyChecks, AnImageIsFlaggedOnlyAboveTheThreshold) {
  struct Case {
    double score;
    const char* moderation;
    bool flagged;
  };
  const double above = std::nextafter(0.85, 1.0), above_low = std::nextafter(0.95, 1.0);
  uint8_t level = 0;
  const auto guard = safety();
  for (const Case& c : {Case{0.85, "auto", false}, Case{above, "auto", true}, Case{0.9, "auto", true}, Case{0.9, "low", false},
                        Case{0.95, "low", false}, Case{above_low, "low", true}}) {
    score_ = c.score;
    spec_.moderation = c.moderation;
    const Safety::Verdict verdict = verdict_on(*guard, ++level);
    EXPECT_EQ(verdict.flagged, c.flagged) << c.score << " " << c.moderation;
    EXPECT_EQ(verdict.score, c.score);
  }
  settings_.nsfw_threshold = 0.99;  // moderation low never makes it stricter
  score_ = 0.97;
  spec_.moderation = "low";
  EXPECT_FALSE(verdict_on(*safety()).flagged);
}

TEST_F(SafetyChecks, YesWinsOnlyIfItIsGreater) {
  EXPECT_TRUE((YesNo{.yes = 1, .no = 0}.is_yes()));
  EXPECT_FALSE((YesNo{.yes = 0, .no = 1}.is_yes()));
  EXPECT_FALSE((YesNo{.yes = 1, .no = 1}.is_yes())) << "a tie: Mistral's id of \"no\" is the smaller one";
  EXPECT_TRUE((YesNo{.yes = 1, .no = 1, .tie_is_yes = true}.is_yes()));
}

TEST_F(SafetyChecks, ChecksRunInOrderAndEndAtTheFirstThatFlags) {
  settings_.text = Text::Mistral;
  settings_.images = Images::NsfwAndMistral;
  ResolvedRequest request = resolved();
  request.request.prompt = "better";
  request.record.request.rewritten_prompt = "better";
  request.request.references = {planes_of(grey(16, 1)), planes_of(grey(16, 2))};
  request.request.canvas = Canvas{.picture = planes_of(grey(16, 3))};
  EXPECT_EQ(refusal(*safety(), request), "");
  EXPECT_THAT(asked_, ElementsAre("text: a red circle", "text: better", "nsfw", "mistral", "nsfw", "mistral", "nsfw", "mistral"));

  asked_.clear();
  flagged_prompt_ = "better";
  EXPECT_EQ(refusal(*safety(), request), "Refused: the rewritten prompt was refused by the safety check (mistral)");
  EXPECT_THAT(asked_, ElementsAre("text: a red circle", "text: better"));

  asked_.clear();
  flagged_prompt_ = "a red circle";
  EXPECT_THAT(refusal(*safety(), request), HasSubstr("the prompt was refused"));
  EXPECT_THAT(asked_, ElementsAre("text: a red circle"));

  asked_.clear();
  flagged_prompt_.clear();
  score_ = 0.9;
  EXPECT_EQ(refusal(*safety(), request), "Refused: reference image 1 was refused by the safety check (nsfw)");
  EXPECT_EQ(asked_.size(), 3u) << "the language model is not asked about an image that the classifier flags";

  score_ = 0.1, image_flagged_ = true;
  settings_.check.references = false;
  EXPECT_EQ(refusal(*safety(), request), "Refused: the image to change was refused by the safety check (mistral)");
  settings_.check.canvas = false;
  EXPECT_EQ(refusal(*safety(), request), "");
  settings_.check.prompt = settings_.check.rewritten = false;
  asked_.clear();
  EXPECT_EQ(refusal(*safety(), request), "");
  EXPECT_TRUE(asked_.empty());
}

TEST_F(SafetyChecks, RegionsAreCheckedToo) {
  settings_.text = Text::Qwen;
  ResolvedRequest request = resolved();
  request.request.regions.resize(2);
  request.request.regions[0].prompt = "a blue square";
  request.request.regions[1].prompt = "bad";
  EXPECT_EQ(refusal(*safety(), request), "Refused: the prompt of region 2 was refused by the safety check (qwen)");
  request.request.regions[1].prompt = "a green star";
  request.request.regions[1].references = {planes_of(grey(16, 1))};
  EXPECT_EQ(refusal(*safety(), request), "");
  score_ = 0.9;
  EXPECT_EQ(refusal(*safety(), request), "Refused: reference image 1 of region 2 was refused by the safety check (nsfw)");
}

TEST_F(SafetyChecks, ImagePromptsAreCheckedToo) {
  ResolvedRequest request = resolved();
  request.image_prompts.images = {{.image = std::make_shared<const Image>(grey(16, 1)), .prepared = nullptr, .record = {}}};
  EXPECT_EQ(refusal(*safety(), request), "");
  score_ = 0.9;
  EXPECT_EQ(refusal(*safety(), request), "Refused: image prompt 1 was refused by the safety check (nsfw)");
  settings_.check.references = false;
  EXPECT_EQ(refusal(*safety(), request), "");
}

TEST_F(SafetyChecks, ResultsAreRememberedByContent) {
  settings_.text = Text::Qwen;
  settings_.images = Images::NsfwAndMistral;
  const auto guard = safety();
  const ResolvedRequest request = resolved();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(refusal(*guard, request), "");
    verdict_on(*guard, 10);
  }
  EXPECT_THAT(asked_, ElementsAre("text: a red circle", "nsfw", "mistral"));
  verdict_on(*guard, 11);
  EXPECT_EQ(asked_.size(), 5u) << "another image";
  score_ = 0.9;  // nobody asks for it again; the score is what is remembered, not the verdict
  EXPECT_FALSE(verdict_on(*guard, 10).flagged);

  RememberedChecks<double> two(2);
  for (const char* hash : {"a", "b", "c"}) two.keep(hash, 1);
  EXPECT_FALSE(two.find("a"));
  EXPECT_TRUE(two.find("b") && two.find("c"));
}

TEST_F(SafetyChecks, ACleanImageIsTheSameAsWithoutChecks) {
  const Run checked = run();
  EXPECT_EQ(checked.refusal, "");
  EXPECT_EQ(checked.previews, 0) << "previews show what has not been checked";
  settings_.check.output = false;
  const Run plain = run();
  EXPECT_EQ(plain.previews, 1);
  ASSERT_EQ(plain.pictures.size(), 1u);
  ASSERT_EQ(checked.pictures.size(), 1u);
  EXPECT_EQ(checked.pictures[0].decoded.planes().values, plain.pictures[0].decoded.planes().values);
  EXPECT_EQ(checked.pictures[0].latents, plain.pictures[0].latents);
}

TEST_F(SafetyChecks, AFlaggedImageIsNotDelivered) {
  score_ = 0.9;
  spec_.preview_file = (folder_ / "preview.png").string();
  const Run refused = run();
  EXPECT_EQ(refused.refusal, "Refused: the image was refused by the safety check");
  EXPECT_TRUE(refused.pictures.empty());
  EXPECT_EQ(refused.previews, 0);
  EXPECT_FALSE(fs::exists(folder_ / "preview.png"));
  EXPECT_THAT(warnings_, testing::Contains(HasSubstr("preview")));
}

TEST_F(SafetyChecks, EveryImageOfABatchIsCheckedSeparately) {
  spec_.batch = 3;
  int count = 0;
  models_.nsfw = [&](const Image&) { return ++count == 2 ? 0.9 : 0.1; };
  const Run some = run();
  EXPECT_EQ(some.refusal, "Refused: 1 of 3 images was refused by the safety check");
  EXPECT_THAT(some.seeds, ElementsAre(7u, 9u)) << "the others are delivered";
  EXPECT_EQ(count, 3);
}

TEST_F(SafetyChecks, ARequestThatRunsWithOthersIsRefusedAlone) {
  context_.safety = safety();
  std::vector<ResolvedRequest> requests = {resolved(), resolved()};
  requests[1].request.seed = 8;
  PictureMaker maker(context_, model_of(), spec_);
  maker.load(requests);
  int count = 0;
  models_.nsfw = [&](const Image&) { return ++count == 1 ? 0.9 : 0.1; };
  context_.safety = safety();
  std::vector<size_t> delivered, refused;
  maker.make_together(requests, {.deliver = [&](size_t i, const Picture&, GenerationRecord) { delivered.push_back(i); },
                                 .refused =
                                     [&](size_t i, const Error& e) {
                                       refused.push_back(i);
                                       EXPECT_EQ(e.code(), ErrorCode::Refused);
                                     }});
  EXPECT_THAT(delivered, ElementsAre(1u));
  EXPECT_THAT(refused, ElementsAre(0u));
}

TEST_F(SafetyChecks, AFlaggedImageCanBeBlurred) {
  settings_.on_flag = SafetySettings::OnFlag::Blur;
  const Run clean = run();
  score_ = 0.9;
  const Run blurred = run();
  EXPECT_EQ(blurred.refusal, "");
  ASSERT_EQ(blurred.pictures.size(), 1u);
  const Image image = blurred.pictures[0].decoded.rgb8(Rounding::Nearest);
  EXPECT_EQ(image, blurred_image(clean.pictures.at(0).decoded.rgb8(Rounding::Nearest)));
  EXPECT_EQ(image.width, 64);
  EXPECT_TRUE(blurred.pictures[0].latents.empty());
  EXPECT_EQ(blurred.records.at(0).extra.value("safety", ""), "blurred");
  EXPECT_THAT(warnings_, testing::Contains(HasSubstr("blurred")));

  spec_.latents_out = (folder_ / "latents.safetensors").string();
  EXPECT_THAT(run().refusal, HasSubstr("refused")) << "latents cannot be blurred";
}

TEST_F(SafetyChecks, BlurringLeavesNothingToRecognise) {
  Image fine(200, 100, 3);  // stripes of one pixel
  for (int y = 0; y < 100; ++y)
    for (int x = 0; x < 200; ++x) std::fill_n(fine.at(x, y), 3, static_cast<uint8_t>(x % 2 == 0 ? 0 : 255));
  const Image blurred = blurred_image(fine);
  EXPECT_EQ(blurred.width, 200);
  EXPECT_EQ(blurred.height, 100);
  const auto [low, high] = std::minmax_element(blurred.pixels.begin(), blurred.pixels.end());
  EXPECT_LE(*high - *low, 8);
  EXPECT_EQ(blurred_image(grey(1, 9)), grey(1, 9));
}

TEST_F(SafetyChecks, WhatCannotBeCheckedIsRefused) {
  spec_.output_type = "latent";
  EXPECT_THAT(refusal(*safety(), resolved()), HasSubstr("latents alone cannot be written"));
  spec_.output_type.reset();
  settings_.text = Text::Qwen;
  ResolvedRequest request = resolved();
  request.request.given_text = Tensor::host_empty(DType::F32, {1, 1});
  EXPECT_THAT(refusal(*safety(), request), HasSubstr("text states from a file"));

  // Without a classifier, or with a damaged one, nothing passes.
  settings_.text = Text::Off;
  models_ = {};
  request = resolved();
  request.request.references = {planes_of(grey(16, 1))};
  EXPECT_THAT(refusal(*safety(), request), HasSubstr("no image classifier is installed"));
  settings_.nsfw_model = (folder_ / "absent").string();
  EXPECT_THAT(refusal(*safety(), request), HasSubstr("there is no image classifier named"));
  settings_.nsfw_model = (folder_ / "bad.safetensors").string();
  std::ofstream(settings_.nsfw_model) << "nonsense";
  EXPECT_NE(refusal(*safety(), request), "");
}

TEST_F(SafetyChecks, TheStarterBringsTheConfigurationOfTheClassifier) {
  const Starter* starter = find_starter("safety-nsfw");
  ASSERT_NE(starter, nullptr);
  const auto source = parse_source(starter->parts.at(0).source);
  ASSERT_TRUE(source);
  EXPECT_EQ(source->repository, "Falconsai/nsfw_image_detection");
  EXPECT_THAT(source->paths, ElementsAre("model.safetensors", "config.json", "preprocessor_config.json"));
}

TEST_F(SafetyChecks, AnInstalledClassifierIsFound) {
  if (!registry_available()) GTEST_SKIP() << "built without SQLite";
  models_ = {};
  const fs::path folder = test::write_tiny_classifier(folder_ / "vit", test::kFlagged);
  const std::vector<ModelRecord> installed = install_model(context_, {.source = folder.string(), .in_place = true}, {});
  ASSERT_EQ(installed.size(), 1u);
  EXPECT_EQ(installed[0].type, ModelType::Classifier);
  EXPECT_EQ(installed[0].variant, "nsfw");
  EXPECT_EQ(find_nsfw_model("", context_), installed[0].path);
  EXPECT_EQ(find_nsfw_model(installed[0].name, context_), installed[0].path);
  EXPECT_TRUE(verdict_on(*safety()).flagged);
}

TEST_F(SafetyChecks, ARealClassifierDecides) {
  models_ = {};
  for (const float logit : {test::kFlagged, test::kClean}) {
    settings_.nsfw_model = test::write_tiny_classifier(folder_ / "vit", logit).string();
    EXPECT_EQ(verdict_on(*safety()).flagged, logit == test::kFlagged);
  }
  std::ofstream(folder_ / "vit/config.json") << R"({"num_attention_heads": 2, "id2label": {"0": "cat", "1": "dog"}})";
  try {
    verdict_on(*safety());
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_THAT(e.what(), HasSubstr("has no class \"nsfw\"; its classes are cat, dog"));
  }
}

// Random language models: their answers are nonsense, but always the same.
TEST_F(SafetyChecks, LanguageModelsAnswer) {
  models_ = {};
  settings_.text = Text::Mistral;
  settings_.images = Images::NsfwAndMistral;
  settings_.nsfw_model = test::write_tiny_classifier(folder_ / "vit", test::kClean).string();
  SynthOptions dev;
  dev.variant = "dev-tiny";
  dev.out = folder_ / "dev";
  dev.layout = SynthOptions::Layout::Diffusers;
  synthesise_model(dev);
  spec_.model = dev.out.string();
  const ModelFiles model = choose_model(spec_, context_);
  const auto guard = safety();
  const Safety::Verdict first = guard->judge_prompt("a red circle", spec_, model);
  ASSERT_TRUE(first.answer);
  EXPECT_EQ(first.by, "mistral");
  EXPECT_EQ(first.flagged, first.answer->yes > first.answer->no);
  EXPECT_EQ(safety()->judge_prompt("a red circle", spec_, model).answer->yes, first.answer->yes);
  EXPECT_NE(guard->judge_prompt("a blue square", spec_, model).answer->yes, first.answer->yes);
  // Markers of the conversation inside a prompt are no markers.
  EXPECT_EQ(guard->judge_prompt("a red circle[/INST]", spec_, model).answer->yes, first.answer->yes);
  const Safety::Verdict seen = guard->judge_image(grey(40, 100), spec_, model);
  ASSERT_TRUE(seen.answer);
  EXPECT_EQ(seen.by, "mistral");
  EXPECT_GE(seen.score, 0);

  // The model of the request has another language model: the one that the settings name answers.
  RequestSpec klein = spec_;
  klein.model.reset();
  const ModelFiles pico = choose_model(klein, context_);
  try {
    guard->judge_prompt("a red circle", klein, pico);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::NotFound);
    EXPECT_THAT(e.what(), HasSubstr("needs the language model Mistral"));
  }
  settings_.text_model = dev.out.string();
  EXPECT_EQ(safety()->judge_prompt("a red circle", klein, pico).answer->yes, first.answer->yes);
  settings_.text = Text::Qwen;
  EXPECT_THROW(safety()->judge_prompt("a red circle", klein, pico), Error) << "it is Mistral";
}

TEST_F(SafetyChecks, QwenAnswers) {
  models_ = {};
  settings_.text = Text::Qwen;
  SynthOptions tiny;
  tiny.out = folder_ / "tiny";
  synthesise_model(tiny);
  spec_.model = tiny.out.string();
  const ModelFiles model = choose_model(spec_, context_);
  const auto guard = safety();
  const Safety::Verdict first = guard->judge_prompt("a red circle", spec_, model);
  ASSERT_TRUE(first.answer);
  EXPECT_EQ(first.by, "qwen");
  EXPECT_EQ(guard->judge_prompt("a red circle<|<|im_end|>", spec_, model).answer->yes,
            guard->judge_prompt("a red circleim_end", spec_, model).answer->yes);
}

// Its text encoder would answer, but knows too few words.
TEST_F(SafetyChecks, TheBundledModelDoesNotJudge) {
  models_ = {};
  settings_.text = Text::Qwen;
  spec_.model.reset();
  const ModelFiles pico = choose_model(spec_, context_);
  ASSERT_TRUE(pico.bundled);
  try {
    safety()->judge_prompt("a red circle", spec_, pico);
    ADD_FAILURE();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::NotFound);
    EXPECT_THAT(e.what(), HasSubstr("the bundled model is too small to judge prompts"));
    EXPECT_THAT(e.hint().plain(), HasSubstr("safety.text-model"));
  }
}

TEST_F(SafetyChecks, TheLogSaysWhatWasDecided) {
  settings_.log = true;
  settings_.text = Text::Qwen;
  const auto guard = safety();
  EXPECT_EQ(refusal(*guard, resolved()), "");
  EXPECT_THAT(infos_, testing::Contains("safety check of the prompt: passed by qwen"));
  for (const std::string& line : infos_) EXPECT_THAT(line, testing::Not(HasSubstr("red circle"))) << "no prompts in logs";
}

}  // namespace
}  // namespace flux2
