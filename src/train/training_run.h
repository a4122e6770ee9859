#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "model/flux2_transformer.h"
#include "model/image_prompt.h"
#include "model/text_encoder.h"
#include "tensor/stream_communicator.h"
#include "train/adapters/adapter_network.h"
#include "train/data/training_set.h"
#include "train/log/run_facts.h"
#include "train/log/run_log.h"
#include "train/optimiser/timesteps.h"
#include "train/ranks/process_group.h"
#include "train/train_options.h"

namespace flux2 {

TimestepOptions timestep_options(const TrainOptions& options);

// When sample images are made.
struct SampleMoment {
  int64_t step = 0, epoch = 0;  // epochs from 1; 0 before the first step
  bool by_epoch = false;        // named by the epoch, else by the step
};

enum class StopRequest {
  None,
  Save,  // write adapter and state at the next step and go on
  End,   // finish the step, write adapter and state, end
  Drop,  // finish the step and end; nothing more is written
};

// What a run is given besides its options.
struct TrainingInputs {
  std::shared_ptr<Flux2Transformer> network;  // the run attaches its adapters to the layers of this copy
  std::shared_ptr<Stream> stream;
  DType activations = DType::F32;
  std::vector<BlockMemory> block_memory;  // what each block keeps for its gradient; empty: as the options say
  const TrainingSet* data = nullptr;
  RunFacts facts;  // what is known about model and files; the run fills in the rest
  Json base;  // names what is trained from, {"model": …, "quant": …}; a state is resumed with the same; null: not compared
  // The text encoder, if it is trained too, as loaded; the data must then give tokens.
  std::shared_ptr<const TextEncoder> text_encoder;
  std::shared_ptr<const NamedWeights> text_encoder_source;
  // A text encoder that is not trained, if the data gives tokens all the same.
  std::shared_ptr<const TextEncoder> fixed_text_encoder;
  CaptionTokens empty_caption;  // of the data, for distillation
  // Called with the encoder of a moment before make_samples; may be empty.
  std::function<void(std::shared_ptr<const TextEncoder> encoder)> use_text_encoder;
  std::optional<ImagePromptConfig> image_prompt;  // what is trained if the kind is image_prompt; the data must then give features
  // Called with the image-prompt adapter of a moment before make_samples; may be empty.
  std::function<void(std::shared_ptr<const ImagePromptNetwork> network)> use_image_prompt;
  Tensor class_text;              // text states [T, C] of output_preservation_class, on the host; undefined without
  std::string device_name;        // for the log
  std::string program;            // name and version, for states
  ProcessGroup* ranks = nullptr;  // null: one process
  std::shared_ptr<StreamCommunicator> device_sums;  // sums gradients on the device; null: `ranks` does

  // Makes the sample images of a moment with this network and returns them. Empty: none are made.
  std::function<std::vector<RunSample>(const SampleMoment&, std::shared_ptr<const Flux2Transformer> network)> make_samples;
  std::function<StopRequest()> stop;                  // asked after every step; may be empty
  std::function<void()> before_block;                 // may stop a pass by throwing Cancelled; may be empty
  std::function<std::pair<double, double>()> memory;  // peak GiB of the device and of the process; may be empty
  std::function<void(const Json& event)> on_event;    // every event of the run; may be empty
  Log log;
};

// Trains an adapter: from the caches of a dataset to files on disk. The result depends only on the options, the data and the
// model, not on the number of threads or on interruptions.
class TrainingRun {
 public:
  // Checks options, opens or resumes a state. Nothing is computed yet, except the statistics of image prompts.
  TrainingRun(TrainingInputs inputs, TrainOptions options);
  ~TrainingRun();

  struct Totals {
    int64_t modules = 0, parameters = 0;
    int64_t steps = 0, epochs = 0, steps_per_epoch = 0;
    int64_t first_step = 0;  // steps that a resumed run has behind it
  };
  Totals totals() const;

  // Runs to the end. What was done is saved, whatever the reason to end. Errors of the run are thrown after that. After an error
  // in the middle of a change of the weights (fused_backward_pass changes them during the whole step) nothing is saved.
  RunEnd run();

  std::filesystem::path last_file() const;  // the adapter written last; empty if none

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace flux2
