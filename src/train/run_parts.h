#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "train/log/output_names.h"
#include "train/log/retention.h"
#include "train/log/run_log.h"
#include "train/log/state_folder.h"
#include "train/optimiser/learning_rate.h"
#include "train/optimiser/optimiser.h"
#include "train/train_options.h"
#include "train/weight_average.h"

namespace flux2 {

// What every run has, whatever it trains: its options, the optimiser, the log, and how far it is.
struct RunParts {
  bool finished() const { return step >= total_steps || end_reason; }

  // Makes the folder for the run's files, and looks at what is in it.
  void open_folder(const Log& log) const;

  // Takes everything over from a state. `restore` gets its weights.
  struct Resumed {
    std::filesystem::path folder;
    std::string dataset_hash;
    std::function<void(const NamedTensors& weights)> restore;
    Log log;
  };
  void resume_from(const Resumed& from);

  // Writes a state unless this step has one. `tensors` is called for what it holds; the averages are added.
  void write_run_state(const std::filesystem::path& folder, const std::string& program, const std::string& dataset_hash,
                       const std::function<StateTensors()>& tensors);

  // Calls `write` with the weights that should be used, and again with their averages if there are any. Does nothing if this step
  // has been written.
  void write_weights(const std::filesystem::path& file, const std::function<void(const std::filesystem::path&)>& write);

  void removed(const std::vector<std::filesystem::path>& files);

  TrainOptions options;
  uint64_t seed = 0;
  std::unique_ptr<Optimiser> optimiser;
  std::unique_ptr<LearningRateSchedule> schedule;
  std::unique_ptr<WeightAverage> average;
  std::optional<RunLog> log;  // only in the first of several processes
  OutputNames names;
  Retention retention;
  LossWindow losses;
  double elapsed_before = 0;

  int64_t steps_per_epoch = 0, total_steps = 0, total_epochs = 0;
  int64_t step = 0, schedule_step = 0, epoch = 0, micro = 0, samples_seen = 0, first_step = 0, bad_steps = 0;
  bool resumed = false;
  std::chrono::steady_clock::time_point began;
  std::optional<RunEndReason> end_reason;
  bool drops = false;  // the end writes neither adapter nor state
  std::string end_message;
  std::filesystem::path last_file;
  int64_t saved_state_step = -1, saved_file_step = -1;
};

}  // namespace flux2
