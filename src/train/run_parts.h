#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
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
    Json base;  // what the run trains from: TrainingInputs::base
    std::function<void(const NamedTensors& weights)> restore;
    Log log;
  };
  void resume_from(const Resumed& from);

  // Writes a state unless this step is in that folder. `tensors` is called for what it holds; the averages are added.
  struct StateFacts {
    std::string program, dataset_hash;
    Json base;
  };
  void write_run_state(const std::filesystem::path& folder, const StateFacts& facts,
                       const std::function<StateTensors()>& tensors);

  // Calls `write` with the weights that should be used, and again with their averages if there are any. Does nothing if this step
  // is in that file.
  void write_weights(const std::filesystem::path& file, const std::function<void(const std::filesystem::path&)>& write);

  // Calls `use` while the weights are those that images are made with and that are saved: what evaluation_weights() gives, or the
  // averages. Afterwards, also after an error, they are those that are trained.
  void with_used_weights(bool averaged, const std::function<void()>& use);

  // What the schedule multiplies every learning rate by in the next step.
  double rate_factor() const;

  // Where the optimiser chooses the learning rates itself, puts those into the report of a step whose `lr` names them.
  void report_own_rates(RunStep& report) const;

  // A run that has made all its steps is done, even if something asked it to end in the last one. Returns whether it is.
  bool settle_end();

  // Ends the log of a run that an error stopped. Before that it calls each of `saves` if there is something to save: hours of
  // work should not be lost because an image cannot be read. It never throws, so the user is told the first error.
  void end_after_error(const std::string& message, const Log& to, const std::vector<std::function<void()>>& saves);

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
  int64_t ranks = 1;              // processes, each of which counts its own batches in `micro`
  bool weights_are_whole = true;  // not in the middle of a step, nor with other weights in their place
  bool resumed = false;
  std::chrono::steady_clock::time_point began;
  std::optional<RunEndReason> end_reason;
  bool drops = false;  // the end writes neither adapter nor state
  std::string end_message;
  std::filesystem::path last_file;
  std::map<std::filesystem::path, int64_t> saved_steps;  // what each file and each state folder of this run holds
};

}  // namespace flux2
