#pragma once

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <vector>

#include "autograd/grad.h"
#include "model/flux2_transformer.h"
#include "nn/rope_table.h"
#include "ops/flow_loss.h"
#include "train/flow_inputs.h"

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

// Few-step distillation: the network learns to go with one step where its teacher goes with many, and with the teacher's guidance
// included. Images of the dataset are not looked at, only their captions and references.
struct Distillation {
  int64_t steps = 4;                                // of the student
  int64_t teacher_steps = 20;                       // a multiple of it
  double guidance = 3.5, reference_guidance = 2.5;  // of the teacher, without and with references; 1: none
  std::shared_ptr<const Flux2Transformer> teacher;
  CaptionTokens empty_caption;  // of the teacher's pass without text
};

struct FlowStepOptions {
  uint64_t seed = 0;
  FlowLoss loss = FlowLoss::Mse;
  double huber_delta = 0.1;
  double guidance = 1.0;       // input of models that take it
  bool zero_cond_t = false;    // references are conditioned on time 0
  bool kv_references = false;  // that, and references see only each other: the rule of klein-9B-KV
  // Output preservation: the weight of a second loss, the text states [T, C] of the class on the host, and the network without
  // adapters.
  double preservation = 0;
  Tensor class_text = {};
  std::shared_ptr<const Flux2Transformer> base = {};
  std::function<Tensor(const FlowInputs& inputs)> text_states = {};  // of a text encoder that is trained too; empty: inputs.text
  // Image prompts of a batch from vectors [B, F] on the device; empty: there are none. In this share of the batches they are left
  // out.
  std::function<ImagePromptInputs(const Tensor& features)> image_prompts = {};
  double image_prompt_dropout = 0;
  std::optional<Distillation> distillation = {};  // instead of flow matching; needs text_states
  bool checkpoint_blocks = false;
  DType activations = DType::F32;
  std::function<void()> before_block = {};            // may stop a pass by throwing
  std::vector<BlockMemory> block_memory = {};         // what each block keeps; empty: as checkpoint_blocks says
  std::shared_ptr<InputStore> input_store = nullptr;  // where the inputs of blocks are kept meanwhile; null: on the device
};

// One pass of the flow-matching objective (training.md §3.1): x_t = (1 − t)·x0 + t·ε, target ε − x0.
class FlowStep {
 public:
  FlowStep(const Flux2Transformer& network, Stream& stream, FlowStepOptions options, DrawTimestep draw)
      : network_(network), stream_(stream), options_(std::move(options)), draw_(std::move(draw)) {}

  // The passes of a batch with their noise: one, or two if only some samples lose their references. Takes most of the time that a
  // step needs on the host, and can be called from any thread.
  std::vector<FlowInputs> prepare(LoadedBatch batch) const;

  struct Result {
    std::vector<double> losses;  // of each sample
    std::vector<float> times;    // t of each sample
    int64_t tokens = 0;          // that the transformer saw
    Gradients gradients;
  };
  // The gradients of the sum of the samples' losses, divided by `divisor`. `before_pass` is called with the samples of each pass.
  // If `take` is given and the loss is finite, it gets each gradient as soon as it is complete, and may change the parameter;
  // there must then be one pass only. Output preservation runs every pass twice with gradients and once without.
  using BeforePass = std::function<void(const std::vector<uint64_t>& samples)>;
  Result train(const std::vector<FlowInputs>& passes, double divisor, const BeforePass& before_pass,
               const TakeGradient& take = {}) const;
  Result train(LoadedBatch batch, double divisor, const BeforePass& before_pass) const {
    return train(prepare(std::move(batch)), divisor, before_pass);
  }

  // The mean loss of a batch at a fixed t, with noise of its own. No gradients.
  double validate(const LoadedBatch& batch, double t) const;

 private:
  Tensor velocity(const Flux2Transformer& network, const FlowInputs& inputs, const Tensor& text) const;
  Tensor velocity(const FlowInputs& inputs) const {
    return velocity(network_, inputs, options_.text_states ? options_.text_states(inputs) : inputs.text);
  }
  // Adds the loss λ · mean (v(class) − v_base(class))² of each sample and its gradients to `result`, from sample `first` on.
  void preserve(const FlowInputs& inputs, double divisor, size_t first, Result& result) const;
  // The teacher's way from noise to an image, and the student's loss on each part of it.
  void distil(const FlowInputs& inputs, double divisor, Result& result) const;
  Tensor guided_velocity(const Flux2Transformer& network, const FlowInputs& inputs, const Tensor& text, const Tensor& empty,
                         double guidance) const;
  // Loss and gradient on the device: MSE only.
  FlowLossTensors device_loss(const FlowInputs& inputs, const Tensor& velocity, double divisor) const;
  FlowLossResult loss_of(const FlowInputs& inputs, std::span<const float> velocity, double divisor) const;
  const Rope& rope_for(const FlowInputs& inputs, int64_t prompt_rows) const;

  const Flux2Transformer& network_;
  Stream& stream_;
  FlowStepOptions options_;
  DrawTimestep draw_;
  struct KeptRope {
    BatchPlan shape;
    int64_t text_length, prompt_rows;
    Rope rope;
  };
  mutable std::list<KeptRope> ropes_;  // newest first
};

}  // namespace flux2
