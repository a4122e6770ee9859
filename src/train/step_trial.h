#pragma once

#include <memory>

#include "train/activation_policy.h"
#include "train/flow_step.h"
#include "train/optimiser/optimiser.h"
#include "train/trained_model.h"

namespace flux2 {

// The shape of a batch: that of the largest one decides how much memory training needs.
struct BatchShape {
  LatentSize size;
  std::vector<LatentSize> references;
  int64_t samples = 0;
  int64_t text_length = 0, text_width = 0;
  int64_t feature_width = 0;  // of vectors of an image encoder; 0: there are none

  int64_t tokens() const;  // of one sample
  LoadedBatch blank() const;
};

// Training steps on a network as a run would do them: with adapters or the whole network, the optimiser, and what the options say
// about memory. For forecasts: on a device that counts memory, or on the real one to measure time.
class StepTrial {
 public:
  // `memory` is what each block keeps. On a device that counts, `is_counted` is true: then nothing is copied.
  StepTrial(Flux2Transformer& network, const std::shared_ptr<Stream>& stream, DType activations, const TrainOptions& options,
            const std::vector<BlockMemory>& memory, const BatchShape& shape, bool is_counted);
  ~StepTrial();

  void step();

 private:
  const TrainOptions& options_;
  LoadedBatch batch_;
  std::shared_ptr<const Flux2Transformer> base_;  // without adapters, for output preservation
  std::unique_ptr<TrainedModel> model_;
  std::unique_ptr<Optimiser> optimiser_;
  std::unique_ptr<FlowStep> objective_;
};

// Bytes that steps need at most besides the frozen weights: what is trained, its gradients and the optimiser's state, and
// activations. `network` is on a device that counts memory.
int64_t counted_step_bytes(const Flux2Transformer& network, DType activations, const TrainOptions& options,
                           const std::vector<BlockMemory>& memory, const BatchShape& shape);

}  // namespace flux2
