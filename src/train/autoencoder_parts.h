#pragma once

#include <memory>
#include <vector>

#include "train/autoencoder_run.h"
#include "train/autoencoder_step.h"
#include "train/run_parts.h"
#include "train/trained_autoencoder.h"

namespace flux2 {

// What a run consists of: the loop is in autoencoder_run.cpp, what it reads and writes in autoencoder_files.cpp.
struct AutoencoderRun::Parts : RunParts {
  Parts(AutoencoderInputs given, TrainOptions chosen);

  RunEnd run();
  void resume(const std::filesystem::path& folder);
  void train_epoch();
  void one_step(const std::vector<LoadedBatch>& group, int64_t first_micro);
  void take_step(const std::vector<Tensor>& gradients, RunStep& report);
  void after_step(bool epoch_ends);
  void validate();
  void make_samples(bool by_epoch, int64_t number);
  void save_checkpoint(const std::filesystem::path& file, int64_t at_epoch);
  void save_state(const std::filesystem::path& folder);

  AutoencoderInputs in;
  std::unique_ptr<TrainedAutoencoder> network;
  std::unique_ptr<AutoencoderStep> objective;
};

}  // namespace flux2
