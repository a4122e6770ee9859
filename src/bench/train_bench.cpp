#include "bench/train_bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "autograd/grad.h"
#include "engine/model_cost.h"
#include "engine/rate.h"
#include "model/block_layers.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/loss.h"
#include "ops/view.h"
#include "train/adapters/rounded_parameters.h"
#include "train/optimiser/optimiser.h"

namespace flux2 {

namespace {

using Clock = std::chrono::steady_clock;

// A model with an adapter on every linear layer of its blocks, and what one step is given.
class TrainingStep {
 public:
  TrainingStep(const Session& session, const TrainBenchOptions& options)
      : options_(options), transformer_(*session.models.transformer.get()), inputs_(random_step(session, options.shape)) {
    Stream& stream = *session.stream;
    const auto layers = block_layers(transformer_);
    for (const auto& [path, layer] : layers) {
      const auto factor = [&](const Shape& shape, double spread) {
        return parameter(spread * random_tensor(stream, DType::F32, shape, std::to_string(leaves_.size())));
      };
      const auto in = static_cast<double>(layer->in);
      leaves_.push_back(factor({options.rank, layer->in}, 1 / std::sqrt(in)));
      leaves_.push_back(factor({layer->out, options.rank}, 0.02));
    }
    if (inputs_.x.dtype() != DType::F32) {
      std::vector<Tensor*> values;
      for (Tensor& leaf : leaves_) values.push_back(&leaf);
      rounded_ = RoundedParameters(values, inputs_.x.dtype());
    }
    for (size_t i = 0; i < layers.size(); ++i) {
      Lora adapter{.down = leaves_[2 * i], .up = leaves_[2 * i + 1]};
      if (!rounded_.empty()) adapter.rounded_down = rounded_[2 * i], adapter.rounded_up = rounded_[2 * i + 1];
      layers[i].layer->adapters = {std::move(adapter)};
    }
    ParameterGroup all{"adapters", 1e-4, {}};
    for (const Tensor& leaf : leaves_) all.tensors.push_back({std::to_string(all.tensors.size()), leaf.detached()});
    optimiser_ = make_optimiser("adamw", {}, {std::move(all)});
    target_ = random_tensor(stream, DType::F32, inputs_.x.shape().with(1, options.shape.picture_tokens()), "target");
  }

  struct Result {
    Tensor loss;
    double gradient_norm;
  };
  Result operator()() const {
    const Tensor v = transformer_({.x = inputs_.with_references(),
                                   .vec = transformer_.condition(inputs_.time, inputs_.conditions.guidance),
                                   .txt = inputs_.conditions.text,
                                   .rope = inputs_.conditions.rope,
                                   .keep = options_.shape.picture_tokens(),
                                   .checkpoint_blocks = options_.checkpoint});
    const Tensor loss = mse_loss(cast(v, DType::F32), target_);
    const Gradients gradients = backward(loss, GraphUse::Release);
    std::vector<Tensor> in_order;
    for (const Tensor& leaf : leaves_) in_order.push_back(gradients[leaf]);
    const double norm = flux2::gradient_norm(in_order);
    optimiser_->step(in_order, 1.0, std::min(1.0, 1.0 / (norm + 1e-6)));
    rounded_.refresh();
    return {loss.detached(), norm};
  }

  const std::vector<Tensor>& leaves() const { return leaves_; }

 private:
  const TrainBenchOptions& options_;
  Flux2Transformer transformer_;
  StepInputs inputs_;
  std::vector<Tensor> leaves_;  // down, up, down, up, …
  RoundedParameters rounded_;
  std::unique_ptr<Optimiser> optimiser_;
  Tensor target_;
};

}  // namespace

TrainBench bench_train(const Engine& engine, const TrainBenchOptions& options) {
  for (int side : {options.shape.width, options.shape.height})
    check(side >= 64 && side % 16 == 0, "a side of {} pixels: it must be a multiple of 16, at least 64", side);
  check(options.shape.batch > 0 && options.repeat > 0 && options.rank > 0, "batch, repeat and rank are at least 1");
  const auto session = engine.open_session(engine.random_model(options.variant, {.text_encoder = false, .vae = false}));
  Stream& stream = *session->stream;
  const TrainingStep step(*session, options);

  TrainBench report;
  report.adapters = static_cast<int>(step.leaves().size() / 2);
  for (const Tensor& leaf : step.leaves()) report.parameters += leaf.numel();
  report.flop = options.shape.batch * lora_step_flop(session->models.transformer.config(), session->models.text_length,
                                                     options.shape.tokens(), options.checkpoint);
  {  // the first step brings memory and algorithms into place, and is looked at
    const TrainingStep::Result first = step();
    report.loss = first.loss.to_doubles()[0];
    report.gradient_norm = first.gradient_norm;
  }
  step();
  stream.wait();
  std::vector<double> times;
  for (int i = 0; i < options.repeat; ++i) {
    const auto start = Clock::now();
    step();
    stream.wait();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  std::sort(times.begin(), times.end());
  report.median = times[times.size() / 2];
  report.fastest = times.front();
  report.memory = engine.memory_use(*session);
  if (options.per_op) report.ops = stream.time_ops([&] { step(); });
  report.ceiling = product_rate(engine, options.repeat);
  return report;
}

}  // namespace flux2
