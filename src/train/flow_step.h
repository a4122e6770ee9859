#pragma once

#include <functional>
#include <list>
#include <vector>

#include "autograd/grad.h"
#include "model/flux2_transformer.h"
#include "nn/rope_table.h"
#include "train/data/training_set.h"
#include "train/optimiser/timesteps.h"

namespace flux2 {

enum class FlowLoss { Mse, Huber, SmoothL1 };

// The loss of one batch, computed on the host: it is a few values per token, and every variant stays in one place.
struct FlowLossInput {
  std::span<const float> velocity, target;  // [B, N, 128]
  std::span<const float> mask;              // [B, N], weights of positions; empty: all 1
  std::span<const double> weight;           // [B]: weight of the timestep times the multiplier of the dataset
  int64_t tokens = 0;                       // N
  FlowLoss kind = FlowLoss::Mse;
  double delta = 0.1;    // where huber and smooth_l1 become linear
  double divisor = 1.0;  // of the gradient: batch size times accumulation
};
struct FlowLossResult {
  std::vector<double> losses;   // [B]: weighted means over positions and channels
  std::vector<float> gradient;  // of Σ losses / divisor with respect to the velocity
};
FlowLossResult flow_loss(const FlowLossInput& input);

struct FlowStepOptions {
  uint64_t seed = 0;
  FlowLoss loss = FlowLoss::Mse;
  double huber_delta = 0.1;
  double guidance = 1.0;  // input of models that take it
  bool checkpoint_blocks = false;
  DType activations = DType::F32;
  std::function<void()> before_block = {};  // may stop a pass by throwing
};

// One pass of the flow-matching objective (training.md §3.1): x_t = (1 − t)·x0 + t·ε, target ε − x0.
class FlowStep {
 public:
  using DrawTimestep = std::function<Timestep(const Sample& sample, LatentSize size)>;

  FlowStep(const Flux2Transformer& network, Stream& stream, FlowStepOptions options, DrawTimestep draw)
      : network_(network), stream_(stream), options_(std::move(options)), draw_(std::move(draw)) {}

  struct Result {
    std::vector<double> losses;  // of each sample
    std::vector<float> times;    // t of each sample
    int64_t tokens = 0;          // that the transformer saw
    Gradients gradients;
  };
  // The gradients of the sum of the samples' losses, divided by `divisor`. Samples without references run in a pass of their
  // own; `before_pass` is called with the samples of each pass.
  Result train(LoadedBatch batch, double divisor, const std::function<void(const std::vector<uint64_t>&)>& before_pass) const;

  // The mean loss of a batch at a fixed t, with noise of its own. No gradients.
  double validate(const LoadedBatch& batch, double t) const;

 private:
  struct Inputs {
    std::vector<float> x, target;  // [B, N, 128]
    std::vector<Timestep> times;
  };
  Inputs noised(const LoadedBatch& batch, uint32_t purpose, const DrawTimestep& draw) const;
  Tensor velocity(const LoadedBatch& batch, const Inputs& inputs) const;
  FlowLossResult loss_of(const LoadedBatch& batch, const Inputs& inputs, std::span<const float> velocity, double divisor) const;
  const Rope& rope_for(const LoadedBatch& batch) const;

  const Flux2Transformer& network_;
  Stream& stream_;
  FlowStepOptions options_;
  DrawTimestep draw_;
  struct KeptRope {
    BatchPlan shape;
    int64_t text_length;
    Rope rope;
  };
  mutable std::list<KeptRope> ropes_;  // newest first
};

}  // namespace flux2
