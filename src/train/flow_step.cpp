#include "train/flow_step.h"

#include <algorithm>
#include <cmath>

#include "base/counted_random.h"
#include "nn/timestep.h"
#include "ops/arithmetic.h"
#include "ops/view.h"
#include "pipeline/latents.h"
#include "pipeline/schedule.h"

namespace flux2 {

namespace {

constexpr size_t kRopesKept = 16;
constexpr uint32_t kImagePromptDropout = 61;  // what the numbers of CountedRandom are for

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

Tensor upload(Stream& stream, DType dtype, const Shape& shape, const std::vector<float>& values) {
  return Tensor::from(stream, dtype, shape, std::span<const float>(values));
}

void add_gradients(Gradients& sums, Gradients more) {
  if (sums.by_node.empty()) {
    sums = std::move(more);
    return;
  }
  for (auto& [node, gradient] : more.by_node) {
    Tensor& sum = sums.by_node[node];
    if (!sum.defined()) {
      sum = gradient;
    } else {
      sum.device().kernels().binary({Binary::Add, sum, gradient, sum});
    }
  }
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

std::vector<FlowInputs> FlowStep::prepare(LoadedBatch whole) const {
  std::vector<FlowInputs> passes;
  for (const LoadedBatch& batch : split_by_references(std::move(whole))) {
    passes.push_back(noised(batch, options_.seed, FlowNoise::Training, draw_, options_.activations));
    // One draw for all samples, because the rows of a batch have the same sequence length.
    const uint64_t first = batch.plan.samples.front().index;
    if (CountedRandom(options_.seed, kImagePromptDropout, first).uniform(0) < options_.image_prompt_dropout)
      passes.back().features = Tensor();
  }
  return passes;
}

const Rope& FlowStep::rope_for(const FlowInputs& inputs, int64_t prompt_rows) const {
  const int64_t text_length = inputs.text_length();
  for (auto kept = ropes_.begin(); kept != ropes_.end(); ++kept)
    if (kept->shape.size == inputs.plan.size && kept->shape.references == inputs.plan.references &&
        kept->text_length == text_length && kept->prompt_rows == prompt_rows) {
      ropes_.splice(ropes_.begin(), ropes_, kept);
      return ropes_.front().rope;
    }
  auto positions = text_positions(text_length);
  const auto add = [&](LatentSize size, int32_t t) {
    const auto more = picture_positions(size.rows, size.columns, t);
    positions.insert(positions.end(), more.begin(), more.end());
  };
  add(inputs.plan.size, 0);
  for (size_t k = 0; k < inputs.references.size(); ++k) add(inputs.plan.references[k], 10 + 10 * static_cast<int32_t>(k));
  if (prompt_rows > 0) {
    const auto more = image_prompt_positions(static_cast<int64_t>(inputs.references.size()), 1, prompt_rows);
    positions.insert(positions.end(), more.begin(), more.end());
  }
  BatchPlan shape;
  shape.size = inputs.plan.size;
  shape.references = inputs.plan.references;
  ropes_.push_front({std::move(shape), text_length, prompt_rows, flux2_rope(stream_, positions)});
  if (ropes_.size() > kRopesKept) ropes_.pop_back();
  return ropes_.front().rope;
}

Tensor FlowStep::velocity(const Flux2Transformer& network, const FlowInputs& inputs, const Tensor& text) const {
  const int64_t n = inputs.plan.size.tokens();
  const DType dtype = options_.activations;
  std::vector<Tensor> parts = {inputs.x.to(stream_).cast(dtype)};
  for (const Tensor& r : inputs.references) parts.push_back(r.to(stream_).cast(dtype));
  std::vector<float> times;
  for (const Timestep& t : inputs.times) times.push_back(1000 * t.model_time);
  const auto sinusoid_of = [&](double value) {
    return timestep_embedding(stream_, std::vector<float>(inputs.times.size(), static_cast<float>(1000 * value)), dtype);
  };
  const Tensor guidance = network.config.guidance ? sinusoid_of(options_.guidance) : Tensor();
  ImagePromptInputs prompts;
  if (options_.image_prompts && inputs.features.defined()) prompts = options_.image_prompts(inputs.features.to(stream_));
  const bool zero = (options_.zero_cond_t || options_.kv_references) && !inputs.references.empty();
  return cast(network({.x = parts.size() == 1 ? parts[0] : concat(parts, 1),
                       .vec = network.condition(timestep_embedding(stream_, times, dtype), guidance),
                       .txt = network.embed_text(text.to(stream_).cast(dtype)),
                       .rope = rope_for(inputs, prompts.tokens.defined() ? prompts.tokens.dim(1) : 0),
                       .keep = n,
                       .reference_vec = zero ? network.condition(sinusoid_of(0), guidance) : Tensor(),
                       .references_apart = options_.kv_references,
                       .image_prompts = prompts.tokens.defined() || !prompts.keys.empty() ? &prompts : nullptr,
                       .checkpoint_blocks = options_.checkpoint_blocks,
                       .block_memory = options_.block_memory,
                       .input_store = options_.input_store.get(),
                       .taps = {},
                       .before_block = options_.before_block}),
              DType::F32);
}

FlowLossResult FlowStep::loss_of(const FlowInputs& inputs, std::span<const float> velocity, double divisor) const {
  return flow_loss({.velocity = velocity,
                    .target = inputs.target,
                    .mask = inputs.mask,
                    .weight = inputs.loss_weight,
                    .tokens = inputs.plan.size.tokens(),
                    .kind = options_.loss,
                    .delta = options_.huber_delta,
                    .divisor = divisor});
}

FlowStep::Result FlowStep::train(const std::vector<FlowInputs>& passes, double divisor, const BeforePass& before_pass,
                                 const TakeGradient& take) const {
  check(!take || passes.size() == 1,
        "a batch with and without references needs two passes, and fused_backward_pass allows one; use a batch size of 1");
  Result result;
  for (const FlowInputs& inputs : passes) {
    std::vector<uint64_t> samples;
    for (const Sample& s : inputs.plan.samples) samples.push_back(s.index);
    before_pass(samples);
    if (options_.distillation) {
      distil(inputs, divisor, result);
      continue;
    }
    const Tensor v = velocity(inputs);
    if (!v.device().is_host() && options_.loss == FlowLoss::Mse && options_.preservation == 0 && !take) {
      // The host waits for the losses only when everything is enqueued.
      const FlowLossTensors loss = device_loss(inputs, v, divisor);
      add_gradients(result.gradients, backward(std::vector<Tensor>{v}, std::vector<Tensor>{loss.gradient}, GraphUse::Release));
      const std::vector<double> losses = loss.losses.to_doubles();
      result.losses.insert(result.losses.end(), losses.begin(), losses.end());
      for (const Timestep& t : inputs.times) result.times.push_back(t.t);
      result.tokens += inputs.tokens();
      continue;
    }
    const FlowLossResult loss = loss_of(inputs, v.to_floats(), divisor);
    result.losses.insert(result.losses.end(), loss.losses.begin(), loss.losses.end());
    for (const Timestep& t : inputs.times) result.times.push_back(t.t);
    result.tokens += inputs.tokens();
    if (take && !std::all_of(loss.losses.begin(), loss.losses.end(), [](double l) { return std::isfinite(l); })) break;
    Gradients gradients =
        backward(std::vector<Tensor>{v}, std::vector<Tensor>{upload(stream_, DType::F32, v.shape(), loss.gradient)},
                 GraphUse::Release, take);
    add_gradients(result.gradients, std::move(gradients));
    if (options_.preservation > 0) preserve(inputs, divisor, result.losses.size() - loss.losses.size(), result);
  }
  return result;
}

// The weights of a sample's positions add up to its loss weight / channels, as in flow_loss().
FlowLossTensors FlowStep::device_loss(const FlowInputs& inputs, const Tensor& v, double divisor) const {
  const auto n = static_cast<size_t>(inputs.plan.size.tokens()), batch = static_cast<size_t>(inputs.size());
  const size_t each = inputs.mask.empty() ? 1 : n;
  std::vector<float> weights;
  for (size_t b = 0; b < batch; ++b) {
    double total = inputs.mask.empty() ? static_cast<double>(n) : 0.0;
    for (size_t i = 0; !inputs.mask.empty() && i < n; ++i) total += inputs.mask[b * n + i];
    const double scale = total > 0 ? inputs.loss_weight[b] / (total * static_cast<double>(kLatentChannels)) : 0;
    for (size_t i = 0; i < each; ++i)
      weights.push_back(static_cast<float>(scale * (inputs.mask.empty() ? 1.0 : inputs.mask[b * n + i])));
  }
  return flow_mse(v, upload(stream_, DType::F32, v.shape(), inputs.target),
                  upload(stream_, DType::F32, {inputs.size(), static_cast<int64_t>(each), 1}, weights), divisor);
}

Tensor FlowStep::guided_velocity(const Flux2Transformer& network, const FlowInputs& inputs, const Tensor& text,
                                 const Tensor& empty, double guidance) const {
  const Tensor with = velocity(network, inputs, text);
  if (guidance == 1) return with;
  const Tensor without = velocity(network, inputs, empty);
  return without + guidance * (with - without);
}

void FlowStep::distil(const FlowInputs& inputs, double divisor, Result& result) const {
  const Distillation& d = *options_.distillation;
  const auto batch = static_cast<size_t>(inputs.size());
  const Shape shape = inputs.x.shape();
  FlowInputs here;
  here.plan = inputs.plan;
  here.token_ids = inputs.token_ids;
  here.token_mask = inputs.token_mask;
  for (const Tensor& r : inputs.references) here.references.push_back(r.to(stream_));
  const Tensor text = options_.text_states(here);
  FlowInputs silent = here;
  std::vector<int32_t> ids, mask;
  for (size_t b = 0; b < batch; ++b) {
    ids.insert(ids.end(), d.empty_caption.ids.begin(), d.empty_caption.ids.end());
    mask.insert(mask.end(), d.empty_caption.mask.begin(), d.empty_caption.mask.end());
  }
  silent.token_ids = Tensor::host_copy(ids.data(), DType::I32, inputs.token_ids.shape());
  silent.token_mask = Tensor::host_copy(mask.data(), DType::I32, inputs.token_mask.shape());
  const Tensor empty = options_.text_states(silent);

  // The noise of the batch: x = (1 − t) x0 + t ε and target = ε − x0, so ε = x + (1 − t) · target.
  std::vector<float> noise = inputs.x.to_floats();
  const size_t one = noise.size() / batch;
  for (size_t i = 0; i < noise.size(); ++i) noise[i] += (1 - inputs.times[i / one].t) * inputs.target[i];
  Tensor x = upload(stream_, DType::F32, shape, noise);

  const double guidance = inputs.references.empty() ? d.guidance : d.reference_guidance;
  const std::vector<float> sigmas = flux2_schedule(inputs.plan.size.tokens(), static_cast<int>(d.steps));
  const int64_t parts = d.teacher_steps / d.steps;
  const double weight = 1.0 / static_cast<double>(d.steps * shape[1] * shape[2]);
  const Tensor weights =
      upload(stream_, DType::F32, {inputs.size(), 1, 1}, std::vector<float>(batch, static_cast<float>(weight)));
  const auto at = [&](const Tensor& place, float sigma) {
    here.x = place;
    here.times.assign(batch, Timestep{sigma, sigma, 1.0});
  };
  std::vector<Tensor> losses;
  for (size_t k = 0; k < static_cast<size_t>(d.steps); ++k) {
    const Tensor start = x;
    const float from = sigmas[k], to = sigmas[k + 1];
    for (int64_t m = 0; m < parts; ++m) {
      const auto share = [&](int64_t i) { return from + (to - from) * static_cast<float>(i) / static_cast<float>(parts); };
      at(x, share(m));
      x = x + double{share(m + 1) - share(m)} * guided_velocity(*d.teacher, here, text, empty, guidance);
    }
    const Tensor wanted = 1.0 / (double{to} - from) * (x - start);
    at(start, from);
    const Tensor v = velocity(network_, here, text);
    const FlowLossTensors loss = flow_mse(v, wanted, weights, divisor);
    add_gradients(result.gradients, backward(std::vector<Tensor>{v}, std::vector<Tensor>{loss.gradient}, GraphUse::Release));
    losses.push_back(loss.losses);
  }
  std::vector<double> sums(batch);
  for (const Tensor& loss : losses) {
    const std::vector<double> values = loss.to_doubles();
    for (size_t b = 0; b < batch; ++b) sums[b] += values[b];
  }
  result.losses.insert(result.losses.end(), sums.begin(), sums.end());
  result.times.insert(result.times.end(), batch, 1.0f);
  result.tokens += d.steps * inputs.tokens();
}

void FlowStep::preserve(const FlowInputs& inputs, double divisor, size_t first, Result& result) const {
  const Tensor text = options_.class_text.to(stream_).cast(options_.activations);
  const Tensor repeated =
      text.reshaped({1, text.dim(0), text.dim(1)}).expanded({inputs.size(), text.dim(0), text.dim(1)}).contiguous();
  const std::vector<float> wanted = velocity(*options_.base, inputs, repeated).to_floats();
  const Tensor v = velocity(network_, inputs, repeated);
  const std::vector<double> weights(static_cast<size_t>(inputs.size()), options_.preservation);
  const FlowLossResult loss = flow_loss({.velocity = v.to_floats(),
                                         .target = wanted,
                                         .mask = {},
                                         .weight = weights,
                                         .tokens = inputs.plan.size.tokens(),
                                         .divisor = divisor});
  for (size_t i = 0; i < loss.losses.size(); ++i) result.losses[first + i] += loss.losses[i];
  add_gradients(result.gradients,
                backward(std::vector<Tensor>{v}, std::vector<Tensor>{upload(stream_, DType::F32, v.shape(), loss.gradient)},
                         GraphUse::Release));
}

double FlowStep::validate(const LoadedBatch& batch, double t) const {
  const DrawTimestep fixed = [&](const Sample&, LatentSize) {
    return Timestep{static_cast<float>(t), static_cast<float>(t), 1.0};
  };
  const FlowInputs inputs = noised(batch, options_.seed, FlowNoise::Validation, fixed, options_.activations);
  const FlowLossResult loss = loss_of(inputs, velocity(inputs).to_floats(), 1.0);
  double sum = 0;
  for (const double value : loss.losses) sum += value;
  return sum / static_cast<double>(loss.losses.size());
}

}  // namespace flux2
