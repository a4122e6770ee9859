#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/batch_queue.h"
#include "train/flow_step.h"
#include "train/log/checkpoint_file.h"
#include "train/log/retention.h"
#include "train/optimiser/learning_rate.h"
#include "train/optimiser/optimiser.h"
#include "train/run_settings.h"
#include "train/trained_text_encoder.h"
#include "train/training_run.h"
#include "train/weight_average.h"

namespace flux2 {

// What a run consists of: the loop is in training_run.cpp, what it reads and writes in training_files.cpp, what it does between
// steps in training_pauses.cpp.
struct TrainingRun::Parts {
  Parts(TrainingInputs given, TrainOptions chosen);

  void attach_adapter();
  std::function<Tensor(const FlowInputs&)> encoder_states() const;  // empty unless the text encoder is trained
  std::vector<BlockMemory> kept_by_blocks() const;
  std::shared_ptr<InputStore> input_store() const;
  RunEnd run();
  void train_epoch();
  void one_step(std::vector<MicroStep> group, int64_t first_micro);
  void after_step(bool epoch_ends);
  void validate();
  void make_samples(bool by_epoch, int64_t epoch);
  void save_checkpoint(const std::filesystem::path& file, int64_t epoch);
  void save_state(const std::filesystem::path& folder);
  void removed(const std::vector<std::filesystem::path>& files);
  void resume(const std::filesystem::path& folder);
  bool is_first_rank() const { return !in.ranks || in.ranks->rank() == 0; }
  bool finished() const { return step >= total_steps || end_reason; }
  Timestep draw(const Sample& sample, LatentSize size) const;  // may be called from any thread
  // Whether a parameter learns with the second rate, of LoRA+ or of the text encoder.
  bool in_second_group(const TrainedParameter& p) const { return p.is_encoder || (lora_plus_ratio > 0 && p.is_up); }
  NamedTensors optimizer_slots() const { return optimiser->slots(); }

  TrainingInputs in;
  TrainOptions options;
  AdapterOptions adapter;
  double lora_plus_ratio = 0;
  uint64_t seed = 0;
  std::unique_ptr<TrainedModel> network;
  const TrainedTextEncoder* encoder = nullptr;  // inside `network`, if it is trained too
  std::unique_ptr<Optimiser> optimiser;
  std::unique_ptr<LearningRateSchedule> schedule;
  std::unique_ptr<WeightAverage> average;
  std::unique_ptr<FlowStep> objective;
  std::optional<TimestepSampler> timesteps;
  mutable std::mutex strata_mutex;
  mutable std::map<int64_t, StratifiedTimesteps> strata;  // of this epoch and the next
  std::unique_ptr<BatchQueue> batches;
  std::optional<RunLog> log;
  OutputNames names;
  Retention retention;
  LossWindow losses;
  double elapsed_before = 0;

  int64_t ranks = 1;
  int64_t steps_per_epoch = 0, total_steps = 0, total_epochs = 0;
  int64_t step = 0, schedule_step = 0, epoch = 0, micro = 0, samples_seen = 0, first_step = 0;
  int64_t bad_steps = 0;
  bool resumed = false, sampled_first = false;
  std::chrono::steady_clock::time_point began;
  std::optional<RunEndReason> end_reason;
  std::string end_message;
  std::filesystem::path last_file;
  int64_t saved_state_step = -1, saved_file_step = -1;
};

}  // namespace flux2
