#include "train/log/state_folder.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include <fstream>
#include <limits>
#include <random>
#include <thread>

#include "base/error.h"
#include "train/log/free_space.h"
#include "train/log/test_folder.h"
#include "train/log/test_tensors.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TrainState state_at(int64_t step) {
  TrainState s;
  s.program = "flux2 1.0";
  s.step = step;
  s.epoch = 2;
  s.micro_in_epoch = 7;
  s.samples_seen = 1234;
  s.seed = 18446744073709551615ull;
  s.options = {{"network_dim", 32}, {"learning_rate", 1e-4}, {"max_train_steps", 100}};
  s.dataset_hash = "abc";
  s.scheduler = {"cosine", step};
  s.optimizer = {"prodigy", {{"d0", 1e-6}}, step, {{"d", 0.1 + 0.2}, {"growth", std::numeric_limits<double>::infinity()}}};
  s.loss_window = {0.1, 1.0 / 3.0, std::nan("")};
  s.elapsed_s = 12.5;
  return s;
}

StateTensors tensors_of(int64_t step) {
  Tensor weight = formula_tensor({4, 8});
  weight.data<float>()[0] = static_cast<float>(step);
  return {.weights = {{"b.lora_up.weight", weight}, {"a.lora_down.weight", formula_tensor({3})}},
          .optimizer = {{"b.lora_up.weight/state1", byte_tensor(33)}, {"b.lora_up.weight/absmax1", formula_tensor({1})}},
          .ema = {}};
}

int64_t step_in_tensors(const LoadedState& loaded) {
  return static_cast<int64_t>(loaded.tensors.weights[1].second.to_floats()[0]);
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(StateFolder, GivesBackWhatWasWritten) {
  const TestFolder folder;
  const fs::path path = folder / "cat-step00000010-state";
  StateTensors tensors = tensors_of(10);
  tensors.ema = {{"b.lora_up.weight", formula_tensor({4, 8})}};
  TrainState state = state_at(10);
  state.scaler = TrainState::Scaler{65536, 12};
  state.extra = {{"tags", {"x"}}};
  write_state(path, state, tensors);
  EXPECT_FALSE(fs::exists(path.string() + ".tmp"));

  const LoadedState loaded = read_state(path.string() + "/");
  const TrainState& s = loaded.state;
  EXPECT_EQ(s.program, "flux2 1.0");
  EXPECT_EQ(s.step, 10);
  EXPECT_EQ(s.epoch, 2);
  EXPECT_EQ(s.micro_in_epoch, 7);
  EXPECT_EQ(s.samples_seen, 1234);
  EXPECT_EQ(s.seed, 18446744073709551615ull);
  EXPECT_EQ(s.options, state.options);
  EXPECT_EQ(s.dataset_hash, "abc");
  EXPECT_EQ(s.scheduler.name, "cosine");
  EXPECT_EQ(s.scheduler.step, 10);
  EXPECT_EQ(s.scaler->scale, 65536);
  EXPECT_EQ(s.scaler->good_steps, 12);
  EXPECT_EQ(s.optimizer.name, "prodigy");
  EXPECT_EQ(s.optimizer.args, state.optimizer.args);
  EXPECT_EQ(s.optimizer.scalars, state.optimizer.scalars);
  EXPECT_EQ(s.loss_window[1], 1.0 / 3.0);
  EXPECT_TRUE(std::isnan(s.loss_window[2]));
  EXPECT_EQ(s.elapsed_s, 12.5);
  EXPECT_EQ(s.extra, state.extra);
  EXPECT_EQ(s.saved_at.size(), std::string("2026-11-16T04:19:07.123Z").size());

  EXPECT_FALSE(loaded.tensors.full_model);
  ASSERT_EQ(loaded.tensors.weights.size(), 2u);
  EXPECT_EQ(loaded.tensors.weights[0].first, "a.lora_down.weight");
  EXPECT_EQ(loaded.tensors.weights[1].second.shape(), Shape({4, 8}));
  EXPECT_EQ(step_in_tensors(loaded), 10);
  ASSERT_EQ(loaded.tensors.optimizer.size(), 2u);
  EXPECT_EQ(loaded.tensors.optimizer[1].first, "b.lora_up.weight/state1");
  EXPECT_EQ(loaded.tensors.optimizer[1].second.dtype(), DType::U8);
  EXPECT_EQ(loaded.tensors.optimizer[1].second.data<uint8_t>()[32], 224);
  EXPECT_EQ(loaded.tensors.ema.size(), 1u);

  StateTensors full = tensors_of(11);
  full.full_model = true;
  write_state(path, state_at(11), full);  // replaces it
  EXPECT_TRUE(fs::exists(path / "model.safetensors"));
  EXPECT_FALSE(fs::exists(path / "adapter.safetensors"));
  EXPECT_TRUE(read_state(path).tensors.full_model);
  EXPECT_EQ(read_state(path).state.step, 11);
  EXPECT_TRUE(read_state(path).tensors.ema.empty());
}

TEST(StateFolder, IncompleteFoldersAreRefused) {
  const TestFolder folder;
  const fs::path path = folder / "cat-state";
  EXPECT_EQ(error_of([&] { read_state(path); }), "the state folder " + path.string() + " does not exist");
  write_state(path, state_at(1), tensors_of(1));
  fs::resize_file(path / "optimizer.safetensors", 100);
  EXPECT_THAT(error_of([&] { read_state(path); }), HasSubstr("optimizer.safetensors has 100 bytes instead of"));
  fs::remove(path / "adapter.safetensors");
  EXPECT_THAT(error_of([&] { read_state_json(path); }), HasSubstr("adapter.safetensors is missing"));
  fs::remove(path / "state.json");
  EXPECT_THAT(error_of([&] { read_state(path); }), HasSubstr("state.json is missing, so this is not a complete state"));
  std::ofstream(path / "state.json") << "{\"files\":{},\"version\":2}";
  EXPECT_THAT(error_of([&] { read_state(path); }), HasSubstr("the state has version 2; this program knows version 1"));
  std::ofstream(path / "state.json") << "{\"files\":{},\"version\":1,\"program\":\"x\",\"step\":-3}";
  EXPECT_THAT(error_of([&] { read_state(path); }), HasSubstr("\"step\" is not a count"));
}

TEST(StateFolder, TheNewestCompleteOneIsFound) {
  const TestFolder folder;
  const OutputNames names{folder.path(), "cat"};
  EXPECT_FALSE(newest_state(names));
  EXPECT_FALSE(newest_state({folder / "nowhere", "cat"}));
  write_state(names.step_state(100), state_at(100), tensors_of(100));  // of an earlier, longer run
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  write_state(names.step_state(10), state_at(10), tensors_of(10));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  write_state(names.epoch_state(1), state_at(20), tensors_of(20));
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  write_state(OutputNames{folder.path(), "cat2"}.last_state(), state_at(500), tensors_of(500));
  TrainState other = state_at(600);
  other.options["output_name"] = "cat-000007";
  write_state(OutputNames{folder.path(), "cat-000007"}.last_state(), other, tensors_of(600));
  write_state(names.step_state(30), state_at(30), tensors_of(30));
  fs::remove(names.step_state(30) / "optimizer.safetensors");
  EXPECT_EQ(newest_state(names), names.epoch_state(1));
}

// Ends a process before each action on the disk, and checks that what is left is the old state, the new one, or none.
void end_everywhere(const fs::path& folder, bool with_old_state) {
  const OutputNames names{folder, "cat"};
  const fs::path path = names.last_state();
  for (int until = 0;; ++until) {
    fs::remove_all(path);
    fs::remove_all(path.string() + ".tmp");
    if (with_old_state) write_state(path, state_at(1), tensors_of(1));
    const pid_t child = ::fork();
    if (child == 0) {
      int actions = 0;
      write_state(path, state_at(2), tensors_of(2), [&](const char*) {
        if (actions++ == until) ::kill(::getpid(), SIGKILL);
      });
      ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    const auto newest = newest_state(names);
    if (newest) {
      const LoadedState loaded = read_state(*newest);
      EXPECT_EQ(step_in_tensors(loaded), loaded.state.step) << "two states are mixed after action " << until;
      EXPECT_TRUE(loaded.state.step == 2 || with_old_state) << until;
    }
    EXPECT_TRUE(newest || !with_old_state) << "the old state is gone after action " << until;
    remove_leftover_states(names);
    EXPECT_FALSE(fs::exists(path.string() + ".tmp"));
    EXPECT_EQ(newest_state(names), newest) << until;
    if (WIFEXITED(status)) {
      EXPECT_GE(until, 8);
      EXPECT_EQ(newest ? read_state(*newest).state.step : -1, 2);
      return;
    }
  }
}

TEST(StateFolder, AKilledProcessLeavesNoHalfState) {
  const TestFolder folder;
  end_everywhere(folder.path(), false);
  end_everywhere(folder.path(), true);
}

TEST(StateFolder, AProcessKilledAtAnyMomentLeavesNoHalfState) {
  const TestFolder folder;
  const OutputNames names{folder.path(), "cat"};
  std::mt19937 random(1);
  int seen = 0;
  for (unsigned run = 0; run < 25 || (seen <= 5 && run < 500); ++run) {  // more and longer ones where the machine is busy
    const pid_t child = ::fork();
    if (child == 0) {
      for (int64_t step = 1;; ++step) {
        write_state(names.step_state(step % 3), state_at(step), tensors_of(step));
        if (step % 4 == 0) remove_state(names.step_state(step % 3));
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % (40'000 * (1 + run / 25))));
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    for (const int64_t n : {0, 1, 2}) {
      const fs::path path = names.step_state(n);
      if (!fs::exists(path)) continue;
      const LoadedState loaded = read_state(path);  // whatever has the name is complete
      EXPECT_EQ(step_in_tensors(loaded), loaded.state.step);
      ++seen;
    }
  }
  EXPECT_GT(seen, 5);
  remove_leftover_states(names);
  for (const auto& entry : fs::directory_iterator(folder.path()))
    EXPECT_TRUE(names.is_state_name(entry.path().filename().string())) << entry.path();
}

TEST(StateFolder, LeftoversOfThisRunAreRemoved) {
  const TestFolder folder;
  const OutputNames names{folder.path(), "cat"};
  write_state(names.last_state(), state_at(3), tensors_of(3));
  fs::create_directories(names.step_state(10).string() + ".tmp");
  fs::create_directories(folder / "dog-state.tmp");
  // As a file system without exchange may leave it: the old state was moved away, the new one never came.
  fs::rename(names.last_state(), names.last_state().string() + ".old");
  EXPECT_THAT(remove_leftover_states(names), ElementsAre(names.step_state(10).string() + ".tmp"));
  EXPECT_TRUE(fs::exists(folder / "dog-state.tmp"));
  EXPECT_EQ(read_state(names.last_state()).state.step, 3);
}

TEST(StateFolder, TooLittleSpaceIsSaidBeforeWriting) {
  const TestFolder folder;
  const std::string error = error_of([&] { check_free_space(folder / "not yet" / "there", uint64_t{1} << 60, "the state"); });
  EXPECT_THAT(error, HasSubstr("has too little space: the state needs 1048576 TiB, and "));
  EXPECT_THAT(error, HasSubstr((folder / "not yet" / "there").string()));
  EXPECT_NO_THROW(check_free_space(folder / "not yet" / "there", 1, "the state"));
}

TEST(StateFolder, StatesOfMusubiTunerGiveTheirWeights) {
  const TestFolder folder;
  EXPECT_FALSE(musubi_state_weights(folder.path()));
  std::ofstream(folder / "model.safetensors") << "x";
  EXPECT_FALSE(musubi_state_weights(folder.path()));
  std::ofstream(folder / "optimizer.bin") << "x";
  EXPECT_EQ(musubi_state_weights(folder.path()), folder / "model.safetensors");
}

struct Heard {
  std::vector<std::string> warnings;
  Log log{[this](LogLevel, const std::string& text) { warnings.push_back(text); }};
};

TEST(ResumeCheck, AnotherRunIsRefused) {
  const TrainState saved = state_at(10);
  const std::string same = "abc", other = "def";
  Heard heard;
  EXPECT_FALSE(check_resume(saved, {saved.options, same, false, heard.log}));
  // limits, cadence, logging, memory and device may differ
  const Json allowed = {{"network_dim", 32},       {"learning_rate", 0.0001}, {"max_train_steps", 500},
                        {"save_every_n_steps", 7}, {"logging_dir", "x"},      {"blocks_to_swap", 5},
                        {"device", "cuda:1"},      {"wandb_run_name", "y"},   {"new_option", false}};
  EXPECT_FALSE(check_resume(saved, {allowed, same, false, heard.log}));
  EXPECT_TRUE(heard.warnings.empty());

  const Json changed = {{"network_dim", 16}, {"max_train_steps", 100}, {"loss", "huber"}};
  const std::string error = error_of([&] { check_resume(saved, {changed, same, false, heard.log}); });
  EXPECT_EQ(
      error,
      "the state is of a run with other options: network_dim was 32 and is now 16; learning_rate was 0.0001 and is now not set; "
      "loss was not set and is now huber");
  EXPECT_TRUE(heard.warnings.empty());
  EXPECT_FALSE(check_resume(saved, {changed, same, true, heard.log}));
  ASSERT_EQ(heard.warnings.size(), 3u);
  EXPECT_EQ(heard.warnings[0], "network_dim was 32 and is now 16; the run goes on with the new value");

  EXPECT_TRUE(check_resume(saved, {saved.options, other, false, heard.log}));
  EXPECT_THAT(heard.warnings.back(), HasSubstr("the dataset has changed"));
}

TEST(ResumeCheck, AnotherBaseModelIsRefused) {
  TrainState saved = state_at(10);
  const std::string same = "abc";
  Heard heard;
  const Json base = {{"model", "a.safetensors 9"}, {"quant", "none"}}, fp8 = {{"model", "a.safetensors 9"}, {"quant", "fp8"}};
  EXPECT_FALSE(check_resume(saved, {saved.options, same, false, heard.log, base})) << "a state of an older program";
  saved.base = base;
  EXPECT_FALSE(check_resume(saved, {saved.options, same, false, heard.log, base}));
  EXPECT_THAT(error_of([&] {
                check_resume(saved, {saved.options, same, false, heard.log, fp8});
              }),
              HasSubstr("quant was none and is now fp8"));
  EXPECT_FALSE(check_resume(saved, {saved.options, same, true, heard.log, fp8}));
  EXPECT_EQ(heard.warnings.size(), 1u);
}

}  // namespace
}  // namespace flux2
