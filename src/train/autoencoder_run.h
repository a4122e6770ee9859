#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "model/vae.h"
#include "train/data/training_set.h"
#include "train/log/run_facts.h"
#include "train/log/run_log.h"
#include "train/train_options.h"
#include "train/training_run.h"
#include "weights/named_weights.h"

namespace flux2 {

// What a run is given besides its options.
struct AutoencoderInputs {
  std::shared_ptr<const Vae> autoencoder;  // as loaded; it is not changed
  std::shared_ptr<const NamedWeights> source;
  std::shared_ptr<Stream> stream;
  DType activations = DType::F32;
  const TrainingSet* data = nullptr;  // of images (image_training_set)
  RunFacts facts;
  Json base;  // as in TrainingInputs
  std::string device_name, program;
  std::function<StopRequest()> stop;                  // asked after every step; may be empty
  std::function<std::pair<double, double>()> memory;  // peak GiB of the device and of the process; may be empty
  std::function<void(const Json& event)> on_event;    // every event of the run; may be empty
  Log log;
};

// Trains an autoencoder: from images to a file that replaces the one it started from. Options, files, states, logs and the report
// are those of TrainingRun; the sample images are reconstructions beside their originals. The result depends only on the options,
// the data and the model, not on interruptions.
class AutoencoderRun {
 public:
  AutoencoderRun(AutoencoderInputs inputs, TrainOptions options);
  ~AutoencoderRun();

  TrainingRun::Totals totals() const;
  RunEnd run();  // to the end; what was done is saved, whatever the reason to end
  std::filesystem::path last_file() const;

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

// Throws InvalidArgument for options that have no meaning for an autoencoder.
void check_autoencoder_options(const TrainOptions& options);

}  // namespace flux2
