#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/autoencoder_run.h"
#include "train/autoencoder_step.h"
#include "train/log/output_names.h"
#include "train/log/retention.h"
#include "train/optimiser/learning_rate.h"
#include "train/optimiser/optimiser.h"
#include "train/trained_autoencoder.h"
#include "train/weight_average.h"

namespace flux2 {

// What a run consists of: the loop is in autoencoder_run.cpp, what it reads and writes in autoencoder_files.cpp.
struct AutoencoderRun::Parts {
  Parts(AutoencoderInputs given, TrainOptions chosen);

  RunEnd run();
  void resume(const std::filesystem::path& folder);
  void train_epoch();
  void one_step(std::vector<LoadedBatch> group, int64_t first_micro);
  void take_step(const std::vector<Tensor>& gradients, RunStep& report);
  void after_step(bool epoch_ends);
  void validate();
  void make_samples(bool by_epoch, int64_t number);
  void save_checkpoint(const std::filesystem::path& file, int64_t at_epoch);
  void save_state(const std::filesystem::path& folder);
  void removed(const std::vector<std::filesystem::path>& files);
  bool finished() const { return step >= total_steps || end_reason; }

  AutoencoderInputs in;
  TrainOptions options;
  uint64_t seed = 0;
  std::unique_ptr<TrainedAutoencoder> network;
  std::unique_ptr<Optimiser> optimiser;
  std::unique_ptr<LearningRateSchedule> schedule;
  std::unique_ptr<WeightAverage> average;
  std::unique_ptr<AutoencoderStep> objective;
  std::optional<RunLog> log;
  OutputNames names;
  Retention retention;
  LossWindow losses;
  double elapsed_before = 0;

  int64_t steps_per_epoch = 0, total_steps = 0, total_epochs = 0;
  int64_t step = 0, schedule_step = 0, epoch = 0, micro = 0, samples_seen = 0, first_step = 0, bad_steps = 0;
  bool resumed = false;
  std::chrono::steady_clock::time_point began;
  std::optional<RunEndReason> end_reason;
  std::string end_message;
  std::filesystem::path last_file;
  int64_t saved_state_step = -1, saved_file_step = -1;
};

}  // namespace flux2
