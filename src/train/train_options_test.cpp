#include "train/train_options.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "train/network_args.h"

namespace flux2 {
namespace {

void set(TrainOptions& o, const char* name, std::vector<std::string> values) {
  const TrainField* field = find_train_field(name);
  ASSERT_NE(field, nullptr) << name;
  set_train_option(o, *field, values);
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(TrainOptions, NamesAreUniqueAndDescribed) {
  std::set<std::string> names;
  for (const TrainField& f : train_fields()) {
    EXPECT_TRUE(names.insert(f.name).second) << f.name;
    EXPECT_FALSE(f.help.empty()) << f.name;
  }
  for (const IgnoredTrainOption& o : ignored_train_options()) EXPECT_TRUE(names.insert(o.name).second) << o.name;
}

TEST(TrainOptions, ValuesAreRead) {
  TrainOptions o;
  set(o, "max-train-steps", {"20"});
  set(o, "learning_rate", {"1e-4"});
  set(o, "network_args", {"rank_dropout=0.1", "exclude_patterns=[r'.*single.*']"});
  set(o, "gradient_checkpointing", {"true"});
  EXPECT_EQ(o.max_train_steps, 20);
  EXPECT_EQ(o.learning_rate, 1e-4);
  EXPECT_TRUE(o.gradient_checkpointing);
  const Json json = train_options_json(o);
  EXPECT_EQ(json["max_train_steps"], 20);
  EXPECT_TRUE(json["max_train_epochs"].is_null());
  EXPECT_EQ(json["network_args"].size(), 2u);
  const NetworkArguments n = parse_network_args(o);
  EXPECT_EQ(n.adapter.dropout.rank, 0.1);
  EXPECT_EQ(n.adapter.exclude, (std::vector<std::string>{".*single.*"}));
}

TEST(TrainOptions, UploadsAreCheckedAndTokensStayHere) {
  TrainOptions o;
  set(o, "huggingface_token", {"hf_secret"});
  EXPECT_EQ(o.huggingface_token, "hf_secret");
  EXPECT_EQ(train_options_json(o).dump().find("hf_secret"), std::string::npos);
  for (const std::string bad : {"name", "/name", "owner/", "a/b/c"}) {
    o.huggingface_repo_id = bad;
    EXPECT_EQ(error_of([&] { check_train_options(o); }),
              "huggingface_repo_id: \"" + bad + "\" is not a repository; write owner/name");
  }
  o.huggingface_repo_id = "owner/name";
  o.save_state_to_huggingface = true;
  check_train_options(o);
  o.huggingface_repo_id = "";
  EXPECT_EQ(error_of([&] { check_train_options(o); }), "save_state_to_huggingface needs huggingface_repo_id");
  TrainOptions resumed;
  resumed.resume_from_huggingface = "";
  EXPECT_EQ(error_of([&] { check_train_options(resumed); }),
            "resume_from_huggingface needs one place of a state: write owner/name/folder");
  resumed.resume = "owner/name/folder";
  EXPECT_EQ(error_of([&] { check_train_options(resumed); }), "");
  resumed.resume_from_huggingface = "owner/name/other";
  EXPECT_EQ(error_of([&] { check_train_options(resumed); }),
            "resume_from_huggingface needs one place of a state: resume must not name another");
}

TEST(TrainOptions, WrongValuesAreNamed) {
  TrainOptions o;
  EXPECT_EQ(error_of([&] { set_train_option(o, *find_train_field("max_train_steps"), {"many"}); }),
            "max_train_steps: \"many\" is not a whole number");
  EXPECT_EQ(error_of([&] { set_train_option(o, *find_train_field("loss"), {"l3"}); }),
            "loss: \"l3\" is not one of: mse, huber, smooth_l1");
  o.network_dim = 0;
  EXPECT_EQ(error_of([&] { check_train_options(o); }), "network_dim must be at least 1, not 0");
  o.network_dim = 4;
  o.network_args = {"rank_dropuot=0.1"};
  EXPECT_NE(error_of([&] { parse_network_args(o); }).find("rank_dropout"), std::string::npos);
  o.network_args = {};
  o.network_module = "networks.oft";
  EXPECT_NE(error_of([&] { parse_network_args(o); }).find("networks.lokr"), std::string::npos);
}

TEST(TrainOptions, PresetsSetKnownOptions) {
  for (const std::string& name : train_preset_names())
    for (const int64_t hidden : {256, 3072, 4096}) {
      TrainOptions o;
      for (const auto& [option, value] : train_preset(name, hidden)) {
        const TrainField* field = find_train_field(option);
        ASSERT_NE(field, nullptr) << option;
        set_train_option(o, *field, {value});
      }
      EXPECT_EQ(o.network_alpha, static_cast<double>(o.network_dim));
      EXPECT_EQ(o.timestep_sampling, "flux2_shift");
    }
  EXPECT_THROW(train_preset("portrait", 3072), Error);
}

TEST(TrainOptions, ValidationTimestepsAreCheckedAtTheStart) {
  TrainOptions o;
  EXPECT_EQ(validation_times(o), (std::vector<double>{0.1, 0.3, 0.5, 0.7, 0.9}));
  o.validation_timesteps = "0.25, 1";
  EXPECT_EQ(validation_times(o), (std::vector<double>{0.25, 1}));
  o.validation_timesteps = "0.1,x";
  EXPECT_EQ(error_of([&] { check_train_options(o); }), "validation_timesteps: \"x\" is not a number");
  o.validation_timesteps = "0.1,";
  EXPECT_EQ(error_of([&] { check_train_options(o); }), "validation_timesteps: \"\" is not a number");
  o.validation_timesteps = "500";
  EXPECT_EQ(error_of([&] { check_train_options(o); }), "validation_timesteps: 500 is not between 0 and 1");
}

TEST(TrainOptions, OutputPreservationNeedsWeightAndClass) {
  TrainOptions o;
  o.output_preservation = 1;
  EXPECT_NE(error_of([&] { check_train_options(o); }).find("need each other"), std::string::npos);
  o.output_preservation_class = "a cat";
  EXPECT_EQ(error_of([&] { check_train_options(o); }), "");
  o.full = true;
  EXPECT_NE(error_of([&] { check_train_options(o); }).find("cannot be combined with full"), std::string::npos);
  o.full = false;
  o.output_preservation = 0;
  EXPECT_NE(error_of([&] { check_train_options(o); }).find("must be positive"), std::string::npos);
}

}  // namespace
}  // namespace flux2
