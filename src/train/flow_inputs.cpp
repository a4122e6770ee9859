#include "train/flow_inputs.h"

#include <algorithm>

#include "base/counted_random.h"
#include "base/error.h"

namespace flux2 {

namespace {

// Channels of all tokens of a sample, [128, tokens], as tokens [tokens, 128].
void write_tokens(const float* planes, size_t tokens, float* to) {
  constexpr auto channels = static_cast<size_t>(kLatentChannels);
  for (size_t i = 0; i < tokens; ++i)
    for (size_t c = 0; c < channels; ++c) to[i * channels + c] = planes[c * tokens + i];
}

Tensor host_tokens(const std::vector<float>& planes, int64_t batch, LatentSize size) {
  Tensor tokens = Tensor::host_empty(DType::F32, {batch, size.tokens(), kLatentChannels});
  const auto n = static_cast<size_t>(size.tokens()), per_sample = n * static_cast<size_t>(kLatentChannels);
  for (size_t b = 0; b < static_cast<size_t>(batch); ++b)
    write_tokens(planes.data() + b * per_sample, n, tokens.data<float>() + b * per_sample);
  return tokens;
}

Tensor host_text(const LoadedBatch& batch, DType dtype) {
  const Shape shape{batch.size(), batch.text_length, batch.text_width};
  if (dtype == DType::F32) return Tensor::host_copy(batch.text.data(), dtype, shape);
  require(dtype == DType::BF16, "text states in {}", name_of(dtype));
  Tensor text = Tensor::host_empty(dtype, shape);
  std::transform(batch.text.begin(), batch.text.end(), text.data<bf16>(), to_bf16);
  return text;
}

}  // namespace

int64_t FlowInputs::tokens() const {
  int64_t tokens = text_length() + plan.size.tokens();
  for (const Tensor& r : references) tokens += r.dim(1);
  return size() * tokens;
}

FlowInputs noised(const LoadedBatch& batch, uint64_t seed, FlowNoise purpose, const DrawTimestep& draw, DType text_dtype) {
  const auto n = static_cast<size_t>(batch.plan.size.tokens()), per_sample = n * static_cast<size_t>(kLatentChannels);
  FlowInputs inputs;
  inputs.plan = batch.plan;
  inputs.x = Tensor::host_empty(DType::F32, {batch.size(), batch.plan.size.tokens(), kLatentChannels});
  inputs.target.resize(batch.latents.size());
  std::vector<float> x(per_sample), target(per_sample), noise(per_sample);
  for (size_t b = 0; b < batch.plan.samples.size(); ++b) {
    const Sample& sample = batch.plan.samples[b];
    const Timestep time = draw(sample, batch.plan.size);
    CountedRandom(seed, static_cast<uint32_t>(purpose), sample.index).normals(noise);
    for (size_t i = 0; i < per_sample; ++i) {
      const float x0 = batch.latents[b * per_sample + i];
      x[i] = (1 - time.t) * x0 + time.t * noise[i];
      target[i] = noise[i] - x0;
    }
    write_tokens(x.data(), n, inputs.x.data<float>() + b * per_sample);
    write_tokens(target.data(), n, inputs.target.data() + b * per_sample);
    inputs.times.push_back(time);
    inputs.loss_weight.push_back(time.weight * batch.loss_multiplier[b]);
  }
  for (const LoadedBatch::Reference& r : batch.references)
    inputs.references.push_back(host_tokens(r.values, batch.size(), r.size));
  if (batch.token_ids.empty()) {
    inputs.text = host_text(batch, text_dtype);
  } else {
    const Shape shape{batch.size(), batch.text_length};
    inputs.token_ids = Tensor::host_copy(batch.token_ids.data(), DType::I32, shape);
    inputs.token_mask = Tensor::host_copy(batch.token_mask.data(), DType::I32, shape);
  }
  if (!batch.features.empty())
    inputs.features = Tensor::host_copy(batch.features.data(), DType::F32,
                                        {batch.size(), static_cast<int64_t>(batch.features.size()) / batch.size()});
  inputs.mask = batch.mask;
  return inputs;
}

}  // namespace flux2
