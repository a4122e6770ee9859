#include "server/jobs/training_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "base/json.h"
#include "image/write_image.h"
#include "server/http/errors.h"
#include "server/jobs/training_runs.h"
#include "server/jobs/tried_adapters.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class TrainingRequestTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "data" / "images");
    fs::create_directories(folder_ / "secret");
    for (const char* name : {"data/images/a.png", "secret/b.png"}) save_image(folder_ / name, encode_png(Image(64, 64, 3)));
    std::ofstream(folder_ / "data" / "images" / "a.txt") << "a fox";
    std::ofstream(folder_ / "secret" / "b.txt") << "secret";
  }
  Json body(const Json& more = Json::object()) const {
    Json json = {{"name", "cats"}, {"dataset", {{"path", (folder_ / "data" / "images").string()}}}};
    json.update(more);
    return json;
  }
  TrainingRequest checked(const Json& more = Json::object()) const { return check_training_request(body(more), allowed_); }
  std::string refusal(const Json& more) const {
    try {
      checked(more);
    } catch (const HttpError& e) {
      return e.what();
    }
    return "";
  }
  std::string write(const Json& dataset) const {
    try {
      write_training_dataset(checked({{"dataset", dataset}}), folder_ / "data" / "run", assets_, allowed_, {});
    } catch (const HttpError& e) {
      return e.code;
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  }

  fs::path folder_ = server_test_folder();
  AllowedFolders allowed_{{folder_ / "data"}};
  AssetStore assets_{folder_ / "data"};
};

TEST_F(TrainingRequestTest, KeepsOptionsAndDrawsASeed) {
  const TrainingRequest request =
      checked({{"preset", "style"}, {"model", "pico"}, {"options", {{"max_train_steps", 8}, {"gradient_checkpointing", true}}}});
  EXPECT_EQ(request.name, "cats");
  EXPECT_EQ(request.stored["preset"], "style");
  EXPECT_EQ(request.stored["options"]["max_train_steps"], 8);
  EXPECT_TRUE(request.stored["options"]["seed"].is_number_integer());
  EXPECT_FALSE(request.dry);
  EXPECT_EQ(checked({{"options", {{"seed", 7}}}}).stored["options"]["seed"], 7);
}

TEST_F(TrainingRequestTest, ListsEveryProblem) {
  try {
    checked({{"name", "a/b"}, {"colour", 1}, {"preset", "none"}, {"options", {{"learnig_rate", 1}, {"output_dir", "/"}}}});
    FAIL();
  } catch (const HttpError& e) {
    EXPECT_EQ(e.status, 400);
    EXPECT_EQ(e.fields.size(), 5u) << e.what();
    EXPECT_THAT(e.what(), HasSubstr("did you mean learning_rate?"));
    EXPECT_THAT(e.what(), HasSubstr("options.output_dir: the server sets this option itself"));
  }
  EXPECT_THAT(refusal({{"dataset", Json::object()}}), HasSubstr("one of config, path and assets"));
  EXPECT_THAT(refusal({{"options", {{"max_train_steps", "many"}}}}), HasSubstr("max_train_steps"));
  EXPECT_THAT(refusal({{"options", {{"full", 3}}}}), HasSubstr("true or false"));
  EXPECT_THAT(refusal({{"name", "run:a@1"}}), HasSubstr("name"));
  for (const char* option : {"resume", "huggingface_token", "logging_dir", "config_file", "jsonl"})
    EXPECT_NE(refusal({{"options", {{option, "x"}}}}), "") << option;
}

TEST_F(TrainingRequestTest, NamesNoFileOutsideTheAllowedFolders) {
  const std::string outside = (folder_ / "secret" / "b.png").string();
  EXPECT_NE(refusal({{"options", {{"network_weights", outside}}}}), "");
  EXPECT_NE(refusal({{"options", {{"sample_prompts", {"a fox --ci " + outside}}}}}), "");
  EXPECT_NE(refusal({{"options", {{"sample_prompts", {"a fox --ip " + outside}}}}}), "");
  EXPECT_NE(refusal({{"options", {{"kind", "image_prompt"}, {"image_prompt_encoder", outside}}}}), "");
  EXPECT_EQ(refusal({{"options", {{"sample_prompts", {"a fox --w 64"}}}}}), "");
  EXPECT_EQ(write({{"path", (folder_ / "secret").string()}}), "path_not_allowed");
  EXPECT_EQ(write({{"path", (folder_ / "nothing").string()}}), "path_not_allowed");
  EXPECT_EQ(write({{"config",
                    {{"general", {{"resolution", 64}, {"caption_extension", ".txt"}}},
                     {"datasets", {{{"image_directory", (folder_ / "secret").string()}}}}}}}),
            "path_not_allowed");
  // A list of images in an allowed folder that names one elsewhere.
  const auto listed = [&](const Json& line) {
    std::ofstream(folder_ / "data" / "list.jsonl") << line.dump() << "\n";
    return write({{"config",
                   {{"general", {{"resolution", 64}}},
                    {"datasets",
                     {{{"image_jsonl_file", (folder_ / "data" / "list.jsonl").string()},
                       {"cache_directory", (folder_ / "data" / "cache").string()}}}}}}});
  };
  const std::string inside = (folder_ / "data" / "images" / "a.png").string();
  EXPECT_EQ(listed({{"image_path", inside}, {"caption", "x"}, {"image_prompt_path", inside}}), "");
  EXPECT_EQ(listed({{"image_path", outside}, {"caption", "x"}}), "path_not_allowed");
  for (const char* key : {"control_path", "image_prompt_path"})
    EXPECT_EQ(listed({{"image_path", inside}, {"caption", "x"}, {key, outside}}), "path_not_allowed") << key;
  EXPECT_EQ(write({{"path", (folder_ / "data" / "images").string()}}), "");
}

TEST_F(TrainingRequestTest, AssetsBecomeADataset) {
  const auto png = encode_png(Image(64, 48, 3));
  const std::string id = "ast_" + assets_.put(png, {.kind = "upload"}).id;
  EXPECT_EQ(write({{"assets", {{{"asset_id", id}, {"caption", "a dog"}, {"references", {id}}, {"image_prompts", {id}}}}}}), "");
  const Json dataset = parse_json(read_text_file(folder_ / "data" / "run" / "dataset.json"));
  EXPECT_EQ(dataset["datasets"][0]["enable_bucket"], true);
  EXPECT_THAT(read_text_file(folder_ / "data" / "run" / "images.jsonl"), HasSubstr("a dog"));
  EXPECT_THAT(read_text_file(folder_ / "data" / "run" / "images.jsonl"), HasSubstr("000000_image_prompt_0.png"));
  EXPECT_TRUE(fs::exists(folder_ / "data" / "run" / "images" / "000000.png"));
  EXPECT_EQ(write({{"assets", {{{"asset_id", "ast_00000000000000000000000000"}, {"caption", "x"}}}}}), "invalid_request");
}

TEST_F(TrainingRequestTest, BecomesTheOptionsOfTheCommandLine) {
  ASSERT_EQ(write({{"path", (folder_ / "data" / "images").string()}}), "");
  const Json stored =
      checked(
          {{"preset", "style"},
           {"options", {{"learning_rate", 0.001}, {"optimizer_args", {"weight_decay=0"}}, {"save_state", false}, {"seed", 3}}}})
          .stored;
  const GivenTrainOptions given = given_train_options(stored, "cats", folder_ / "data" / "run");
  EXPECT_EQ(given.at("learning_rate"), std::vector<std::string>{"0.001"});
  EXPECT_EQ(given.at("optimizer_args"), std::vector<std::string>{"weight_decay=0"});
  EXPECT_EQ(given.at("save_state"), std::vector<std::string>{"false"});
  EXPECT_EQ(given.at("output_name"), std::vector<std::string>{"cats"});
  EXPECT_FALSE(given.contains("resume"));
  const TrainOptions options = resolve_train_options(given, 3072);
  EXPECT_EQ(options.learning_rate, 0.001);
  EXPECT_EQ(options.seed, 3);
  EXPECT_FALSE(options.save_state);
}

TEST_F(TrainingRequestTest, SomeOptionsMayChange) {
  const Json options = {{"max_train_steps", 8}, {"seed", 3}};
  EXPECT_EQ(changed_options(options, {{"max_train_steps", 20}})["max_train_steps"], 20);
  EXPECT_FALSE(changed_options(options, {{"max_train_steps", nullptr}}).contains("max_train_steps"));
  for (const Json& wrong : {Json{{"seed", 4}}, Json{{"learning_rate", 1}}, Json{{"max_train_steps", "x"}}, Json::object()})
    EXPECT_THROW(changed_options(options, wrong), HttpError) << wrong.dump();
}

TEST(RunActions, FollowTheStateOfARun) {
  const auto allows = [](const char* state, RunAction action, bool has_job) {
    flux2::Run run;
    run.state = state;
    try {
      check_action(run, action, has_job);
    } catch (const HttpError& e) {
      EXPECT_EQ(e.status, 409);
      return false;
    }
    return true;
  };
  for (const char* state : {"preparing", "caching", "running", "saving"}) {
    EXPECT_TRUE(allows(state, RunAction::Pause, true)) << state;
    EXPECT_TRUE(allows(state, RunAction::Stop, true)) << state;
    EXPECT_FALSE(allows(state, RunAction::Resume, true)) << state;
  }
  EXPECT_TRUE(allows("paused", RunAction::Resume, false));
  EXPECT_FALSE(allows("paused", RunAction::Resume, true)) << "it goes on by itself";
  EXPECT_TRUE(allows("paused", RunAction::Pause, true)) << "and then it does not";
  EXPECT_FALSE(allows("paused", RunAction::Pause, false));
  EXPECT_TRUE(allows("paused", RunAction::Stop, false));
  for (const char* state : {"stopped", "failed"}) {
    EXPECT_TRUE(allows(state, RunAction::Resume, false)) << state;
    EXPECT_FALSE(allows(state, RunAction::Stop, false)) << state;
  }
  for (const RunAction action : {RunAction::Pause, RunAction::Resume, RunAction::Stop, RunAction::Change})
    EXPECT_FALSE(allows("completed", action, false));
}

TEST(TriedAdapters, AreFoundByName) {
  const fs::path data = server_test_folder();
  const fs::path file = tried_file(data, "my cats", 40);
  fs::create_directories(file.parent_path());
  std::ofstream(file) << "x";
  EXPECT_EQ(tried_name("my cats", 40), "run:my cats@40");
  EXPECT_EQ(tried_adapter("run:my cats@40", data).file, file);
  EXPECT_EQ(tried_adapter("run:my cats@40:0.5:!mlp", data).rest, ":0.5:!mlp");
  for (const char* wrong : {"run:my cats@41", "run:my cats", "run:@40", "run:../tried/my cats@40", "run:my cats@040", "run:"})
    EXPECT_THROW(tried_adapter(wrong, data), Error) << wrong;
}

}  // namespace
}  // namespace flux2
