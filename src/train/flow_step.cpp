#include "train/flow_step.h"

#include <cmath>

#include "base/counted_random.h"
#include "nn/timestep.h"
#include "ops/view.h"
#include "pipeline/latents.h"

namespace flux2 {

namespace {

constexpr uint32_t kNoise = 1, kValidationNoise = 13;
constexpr size_t kRopesKept = 16;

struct Slope {
  double value, slope;
};

Slope penalty(double error, FlowLoss kind, double delta) {
  const double size = std::abs(error), sign = error < 0 ? -1.0 : 1.0;
  switch (kind) {
    case FlowLoss::Mse: return {error * error, 2 * error};
    case FlowLoss::Huber:
      return size <= delta ? Slope{0.5 * error * error, error} : Slope{delta * (size - 0.5 * delta), sign * delta};
    case FlowLoss::SmoothL1:
      return size <= delta ? Slope{0.5 * error * error / delta, error / delta} : Slope{size - 0.5 * delta, sign};
  }
  return {};
}

// Samples [B, 128, rows, columns] as tokens [B, rows · columns, 128].
std::vector<float> tokens_of(std::span<const float> planes, int64_t batch, LatentSize size) {
  std::vector<float> tokens(planes.size());
  const auto n = static_cast<size_t>(size.tokens()), channels = static_cast<size_t>(kLatentChannels);
  for (size_t b = 0; b < static_cast<size_t>(batch); ++b)
    for (size_t c = 0; c < channels; ++c)
      for (size_t i = 0; i < n; ++i) tokens[(b * n + i) * channels + c] = planes[(b * channels + c) * n + i];
  return tokens;
}

Tensor upload(Stream& stream, DType dtype, const Shape& shape, const std::vector<float>& values) {
  return Tensor::from(stream, dtype, shape, std::span<const float>(values));
}

}  // namespace

FlowLossResult flow_loss(const FlowLossInput& in) {
  const auto batch = in.weight.size(), n = static_cast<size_t>(in.tokens), channels = static_cast<size_t>(kLatentChannels);
  require(in.velocity.size() == batch * n * channels && in.target.size() == in.velocity.size(), "loss: {} values for {} samples",
          in.velocity.size(), batch);
  FlowLossResult result;
  result.gradient.resize(in.velocity.size());
  for (size_t b = 0; b < batch; ++b) {
    double total_weight = static_cast<double>(n);
    if (!in.mask.empty()) {
      total_weight = 0;
      for (size_t i = 0; i < n; ++i) total_weight += in.mask[b * n + i];
    }
    // A mask of zeros leaves nothing to learn from this sample.
    const double scale = total_weight > 0 ? in.weight[b] / (total_weight * static_cast<double>(channels)) : 0;
    double loss = 0;
    for (size_t i = 0; i < n; ++i) {
      const double weight = scale * (in.mask.empty() ? 1.0 : in.mask[b * n + i]);
      for (size_t c = 0; c < channels; ++c) {
        const size_t at = (b * n + i) * channels + c;
        const Slope p = penalty(double{in.velocity[at]} - in.target[at], in.kind, in.delta);
        loss += weight * p.value;
        result.gradient[at] = static_cast<float>(weight * p.slope / in.divisor);
      }
    }
    result.losses.push_back(loss);
  }
  return result;
}

FlowStep::Inputs FlowStep::noised(const LoadedBatch& batch, uint32_t purpose, const DrawTimestep& draw) const {
  const LatentSize size = batch.plan.size;
  const auto per_sample = static_cast<size_t>(kLatentChannels * size.tokens());
  Inputs inputs;
  std::vector<float> x(batch.latents.size()), target(batch.latents.size()), noise(per_sample);
  for (size_t b = 0; b < batch.plan.samples.size(); ++b) {
    const Sample& sample = batch.plan.samples[b];
    const Timestep time = draw(sample, size);
    CountedRandom(options_.seed, purpose, sample.index).normals(noise);
    for (size_t i = 0; i < per_sample; ++i) {
      const size_t at = b * per_sample + i;
      x[at] = (1 - time.t) * batch.latents[at] + time.t * noise[i];
      target[at] = noise[i] - batch.latents[at];
    }
    inputs.times.push_back(time);
  }
  inputs.x = tokens_of(x, batch.size(), size);
  inputs.target = tokens_of(target, batch.size(), size);
  return inputs;
}

const Rope& FlowStep::rope_for(const LoadedBatch& batch) const {
  for (auto kept = ropes_.begin(); kept != ropes_.end(); ++kept)
    if (kept->shape.size == batch.plan.size && kept->shape.references == batch.plan.references &&
        kept->text_length == batch.text_length) {
      ropes_.splice(ropes_.begin(), ropes_, kept);
      return ropes_.front().rope;
    }
  auto positions = text_positions(batch.text_length);
  const auto add = [&](LatentSize size, int32_t t) {
    const auto more = picture_positions(size.rows, size.columns, t);
    positions.insert(positions.end(), more.begin(), more.end());
  };
  add(batch.plan.size, 0);
  for (size_t k = 0; k < batch.references.size(); ++k) add(batch.references[k].size, 10 + 10 * static_cast<int32_t>(k));
  BatchPlan shape;
  shape.size = batch.plan.size;
  shape.references = batch.plan.references;
  ropes_.push_front({std::move(shape), batch.text_length, flux2_rope(stream_, positions)});
  if (ropes_.size() > kRopesKept) ropes_.pop_back();
  return ropes_.front().rope;
}

Tensor FlowStep::velocity(const LoadedBatch& batch, const Inputs& inputs) const {
  const int64_t b = batch.size(), n = batch.plan.size.tokens();
  const DType dtype = options_.activations;
  std::vector<Tensor> parts = {upload(stream_, dtype, {b, n, kLatentChannels}, inputs.x)};
  for (const LoadedBatch::Reference& r : batch.references)
    parts.push_back(upload(stream_, dtype, {b, r.size.tokens(), kLatentChannels}, tokens_of(r.values, b, r.size)));
  std::vector<float> times;
  for (const Timestep& t : inputs.times) times.push_back(1000 * t.model_time);
  Tensor guidance;
  if (network_.config.guidance) {
    const std::vector<float> values(static_cast<size_t>(b), static_cast<float>(1000 * options_.guidance));
    guidance = timestep_embedding(stream_, values, dtype);
  }
  const Tensor text = upload(stream_, dtype, {b, batch.text_length, batch.text_width}, batch.text);
  return cast(network_({.x = parts.size() == 1 ? parts[0] : concat(parts, 1),
                        .vec = network_.condition(timestep_embedding(stream_, times, dtype), guidance),
                        .txt = network_.embed_text(text),
                        .rope = rope_for(batch),
                        .keep = n,
                        .checkpoint_blocks = options_.checkpoint_blocks,
                        .taps = {},
                        .before_block = options_.before_block}),
              DType::F32);
}

FlowLossResult FlowStep::loss_of(const LoadedBatch& batch, const Inputs& inputs, std::span<const float> velocity,
                                 double divisor) const {
  std::vector<double> weights;
  for (size_t i = 0; i < inputs.times.size(); ++i) weights.push_back(inputs.times[i].weight * batch.loss_multiplier[i]);
  return flow_loss({.velocity = velocity,
                    .target = inputs.target,
                    .mask = batch.mask,
                    .weight = weights,
                    .tokens = batch.plan.size.tokens(),
                    .kind = options_.loss,
                    .delta = options_.huber_delta,
                    .divisor = divisor});
}

FlowStep::Result FlowStep::train(LoadedBatch whole, double divisor,
                                 const std::function<void(const std::vector<uint64_t>&)>& before_pass) const {
  Result result;
  for (const LoadedBatch& batch : split_by_references(std::move(whole))) {
    std::vector<uint64_t> samples;
    for (const Sample& s : batch.plan.samples) samples.push_back(s.index);
    before_pass(samples);
    const Inputs inputs = noised(batch, kNoise, draw_);
    const Tensor v = velocity(batch, inputs);
    const FlowLossResult loss = loss_of(batch, inputs, v.to_floats(), divisor);
    result.losses.insert(result.losses.end(), loss.losses.begin(), loss.losses.end());
    for (const Timestep& t : inputs.times) result.times.push_back(t.t);
    int64_t tokens = batch.text_length + batch.plan.size.tokens();
    for (const auto& r : batch.references) tokens += r.size.tokens();
    result.tokens += batch.size() * tokens;
    Gradients gradients = backward(std::vector<Tensor>{v},
                                   std::vector<Tensor>{upload(stream_, DType::F32, v.shape(), loss.gradient)}, GraphUse::Release);
    if (result.gradients.by_node.empty()) {
      result.gradients = std::move(gradients);
    } else {
      for (auto& [node, gradient] : gradients.by_node) {
        Tensor& sum = result.gradients.by_node[node];
        if (!sum.defined()) {
          sum = gradient;
        } else {
          sum.device().kernels().binary({Binary::Add, sum, gradient, sum});
        }
      }
    }
  }
  return result;
}

double FlowStep::validate(const LoadedBatch& batch, double t) const {
  const Inputs inputs = noised(batch, kValidationNoise, [&](const Sample&, LatentSize) {
    return Timestep{static_cast<float>(t), static_cast<float>(t), 1.0};
  });
  const FlowLossResult loss = loss_of(batch, inputs, velocity(batch, inputs).to_floats(), 1.0);
  double sum = 0;
  for (const double value : loss.losses) sum += value;
  return sum / static_cast<double>(loss.losses.size());
}

}  // namespace flux2
