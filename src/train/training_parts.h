#pragma once

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
#include "train/run_parts.h"
#include "train/run_settings.h"
#include "train/trained_image_prompt.h"
#include "train/trained_text_encoder.h"
#include "train/training_run.h"

namespace flux2 {

// What a run consists of: the loop is in training_run.cpp, what it reads and writes in training_files.cpp, what it does between
// steps in training_pauses.cpp.
struct TrainingRun::Parts : RunParts {
  Parts(TrainingInputs given, TrainOptions chosen);

  void attach_adapter();
  void attach_image_prompt();
  std::function<Tensor(const FlowInputs&)> encoder_states() const;        // empty unless the text encoder is trained
  std::function<ImagePromptInputs(const Tensor&)> image_prompts() const;  // empty unless they are trained
  double image_prompt_dropout() const;
  std::vector<BlockMemory> kept_by_blocks() const;
  std::shared_ptr<InputStore> input_store() const;
  RunEnd run();
  void train_epoch();
  void one_step(const std::vector<MicroStep>& group, int64_t first_micro);
  void after_step(bool epoch_ends);
  void validate();
  void make_samples(bool by_epoch, int64_t epoch);
  void save_checkpoint(const std::filesystem::path& file, int64_t epoch);
  void save_state(const std::filesystem::path& folder);
  void resume(const std::filesystem::path& folder);
  bool is_first_rank() const { return !in.ranks || in.ranks->rank() == 0; }
  Timestep draw(const Sample& sample, LatentSize size) const;  // may be called from any thread
  // Whether a parameter learns with the second rate, of LoRA+ or of the text encoder.
  bool in_second_group(const TrainedParameter& p) const { return p.is_encoder || (lora_plus_ratio > 0 && p.is_up); }

  TrainingInputs in;
  AdapterOptions adapter;
  double lora_plus_ratio = 0;
  std::string start_weights;  // the file that the trained weights start from; empty: as new
  std::unique_ptr<TrainedModel> network;
  const TrainedTextEncoder* encoder = nullptr;  // inside `network`, if it is trained too
  TrainedImagePrompt* image_prompt = nullptr;   // is `network`, if that is what is trained
  std::unique_ptr<FlowStep> objective;
  std::optional<TimestepSampler> timesteps;
  mutable std::mutex strata_mutex;
  mutable std::map<int64_t, StratifiedTimesteps> strata;  // of this epoch and the next
  std::unique_ptr<BatchQueue> batches;
  bool sampled_first = false;
};

}  // namespace flux2
