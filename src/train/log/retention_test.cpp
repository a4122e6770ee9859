#include "train/log/retention.h"

#include <gmock/gmock.h>

#include <fstream>

#include "base/error.h"
#include "train/log/state_folder.h"
#include "train/log/test_folder.h"
#include "train/log/test_tensors.h"

namespace flux2 {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  return names;
}

TEST(OutputNames, AreThoseOfMusubiTuner) {
  const OutputNames names{"out", "cat"};
  EXPECT_EQ(names.epoch_checkpoint(2), "out/cat-000002.safetensors");
  EXPECT_EQ(names.step_checkpoint(100), "out/cat-step00000100.safetensors");
  EXPECT_EQ(names.last_checkpoint(), "out/cat.safetensors");
  EXPECT_EQ(names.epoch_state(2), "out/cat-000002-state");
  EXPECT_EQ(names.step_state(100), "out/cat-step00000100-state");
  EXPECT_EQ(names.last_state(), "out/cat-state");
  EXPECT_EQ(names.log(), "out/cat.jsonl");
  const std::string time = compact_time(1763266747);
  EXPECT_EQ(time.size(), 14u);
  EXPECT_EQ(names.sample({.number = 100, .index = 3, .unix_time = 1763266747, .seed = 42}),
            "out/sample/cat_000100_03_" + time + "_42_000.png");
  EXPECT_EQ(names.sample({.by_epoch = true, .number = 2, .unix_time = 1763266747, .seed = {}}),
            "out/sample/cat_e000002_00_" + time + "_000.png");
}

TEST(OutputNames, StatesOfOtherRunsAreNotMistaken) {
  const OutputNames names{"out", "cat"};
  for (const char* name : {"cat-state", "cat-000002-state", "cat-step00000100-state", "cat-1234567-state"})
    EXPECT_TRUE(names.is_state_name(name)) << name;
  for (const char* name : {"cat2-state", "cat-two-state", "cat-000002-state.tmp", "cat-000002", "cat-dog-000002-state",
                           "cat-0002-state", "-state", "state"})
    EXPECT_FALSE(names.is_state_name(name)) << name;
  EXPECT_THROW(check_output_name("a/b"), Error);
  EXPECT_THROW(check_output_name(""), Error);
  EXPECT_THROW(check_output_name(".."), Error);
  EXPECT_NO_THROW(check_output_name("my cat"));
}

TEST(Retention, RemovesTheOneNumberThatTheFormulaGives) {
  Retention rules{.every_n_epochs = 2,
                  .every_n_steps = 10,
                  .last_n_epochs = 3,
                  .last_n_steps = 30,
                  .last_n_epochs_state = {},
                  .last_n_steps_state = {}};
  EXPECT_EQ(epoch_to_remove(rules, 4), std::nullopt);
  EXPECT_EQ(epoch_to_remove(rules, 6), 0);
  EXPECT_EQ(epoch_to_remove(rules, 8), 2);
  EXPECT_EQ(epoch_state_to_remove(rules, 6), std::nullopt) << "a state is removed only above 0";
  EXPECT_EQ(epoch_state_to_remove(rules, 8), 2);
  EXPECT_EQ(step_to_remove(rules, 30), std::nullopt);
  EXPECT_EQ(step_to_remove(rules, 40), 0);
  EXPECT_EQ(step_to_remove(rules, 50), 10);
  EXPECT_EQ(step_state_to_remove(rules, 40), std::nullopt);
  EXPECT_EQ(step_state_to_remove(rules, 50), 10);
  rules.last_n_steps_state = 10;
  rules.last_n_epochs_state = 1;
  EXPECT_EQ(step_state_to_remove(rules, 50), 30);
  EXPECT_EQ(step_to_remove(rules, 50), 10);
  EXPECT_EQ(epoch_state_to_remove(rules, 8), 6);
  EXPECT_EQ(step_to_remove({}, 50), std::nullopt);
  EXPECT_EQ(epoch_state_to_remove({}, 50), std::nullopt);
  const Retention only_states{.every_n_epochs = {},
                              .every_n_steps = 5,
                              .last_n_epochs = {},
                              .last_n_steps = {},
                              .last_n_epochs_state = {},
                              .last_n_steps_state = 5};
  EXPECT_EQ(step_to_remove(only_states, 20), std::nullopt);
  EXPECT_EQ(step_state_to_remove(only_states, 20), 10);
}

TEST(Retention, PrunesFilesAndFoldersOfThisRunOnly) {
  const TestFolder folder;
  const OutputNames names{folder.path(), "cat"}, others{folder.path(), "dog"};
  const Retention rules{.every_n_epochs = {},
                        .every_n_steps = 10,
                        .last_n_epochs = {},
                        .last_n_steps = 20,
                        .last_n_epochs_state = {},
                        .last_n_steps_state = 10};
  const auto save = [&](const OutputNames& which, int64_t step) {
    std::ofstream(which.step_checkpoint(step)) << "x";
    write_state(which.step_state(step), {}, {.weights = {{"a", formula_tensor({2})}}, .optimizer = {}, .ema = {}});
  };
  for (const int64_t step : {10, 20, 30, 40}) {
    save(names, step);
    save(others, step);
    prune_after_step(names, rules, step, {});
  }
  EXPECT_THAT(names_in(folder.path()),
              UnorderedElementsAre("cat-step00000020.safetensors", "cat-step00000030.safetensors", "cat-step00000040.safetensors",
                                   "cat-step00000030-state", "cat-step00000040-state", "dog-step00000010.safetensors",
                                   "dog-step00000020.safetensors", "dog-step00000030.safetensors", "dog-step00000040.safetensors",
                                   "dog-step00000010-state", "dog-step00000020-state", "dog-step00000030-state",
                                   "dog-step00000040-state"));
  save(names, 50);
  const auto average = folder / "cat-step00000020-ema.safetensors";
  std::ofstream(average) << "x";
  EXPECT_THAT(prune_after_step(names, rules, 50, {}), ElementsAre(names.step_checkpoint(20), average, names.step_state(30)));
  EXPECT_THAT(prune_after_step(names, rules, 50, {}), ElementsAre());
}

}  // namespace
}  // namespace flux2
