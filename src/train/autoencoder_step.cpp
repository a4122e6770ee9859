#include "train/autoencoder_step.h"

#include <algorithm>
#include <cmath>

#include "base/counted_random.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/view.h"

namespace flux2 {

namespace {

constexpr uint32_t kLatentNoise = 41;  // what the numbers of CountedRandom are for

// The mean over everything but the batch: [B, 1, 1, 1].
Tensor mean_of_samples(const Tensor& x) {
  return static_cast<double>(x.dim(0)) / static_cast<double>(x.numel()) * sum_to(x, {x.dim(0), 1, 1, 1});
}

Tensor differences(const Tensor& x, int axis) {
  const int64_t length = x.dim(axis) - 1;
  return narrow(x, axis, 1, length) - narrow(x, axis, 0, length);
}

// One sample [H, W, 3] of −1 … 1 as an image.
Image image_of(std::span<const float> values, int width, int height) {
  Image image(width, height, 3);
  for (size_t i = 0; i < values.size(); ++i)
    image.pixels[i] = static_cast<uint8_t>(std::lround(127.5 * (std::clamp(double{values[i]}, -1.0, 1.0) + 1.0)));
  return image;
}

double psnr_of(const Image& a, const Image& b) {
  double sum = 0;
  for (size_t i = 0; i < a.pixels.size(); ++i) sum += std::pow(double(a.pixels[i]) - double(b.pixels[i]), 2);
  const double mse = sum / static_cast<double>(a.pixels.size());
  return mse > 0 ? 10 * std::log10(255.0 * 255.0 / mse) : 100.0;
}

}  // namespace

Tensor AutoencoderStep::pixels_of(const LoadedBatch& batch) const {
  const Shape shape{batch.size(), 16 * batch.plan.size.rows, 16 * batch.plan.size.columns, 3};
  // The device rounds: the host would take several milliseconds, for which the device would wait.
  return Tensor::from(stream_, DType::F32, shape, std::span<const float>(batch.pixels)).cast(options_.activations);
}

AutoencoderStep::Moments AutoencoderStep::moments_of(const Vae& vae, const Tensor& image) {
  const Tensor moments = cast(vae.encode_moments(image), DType::F32);
  const int64_t channels = vae.config.latent_channels;
  return {narrow(moments, 3, 0, channels), narrow(moments, 3, channels, channels)};
}

Tensor AutoencoderStep::decoded(const Vae& vae, const Tensor& latents) const {
  return cast(vae.decode_latents(cast(latents, options_.activations)), DType::F32);
}

Tensor AutoencoderStep::losses_of(const Tensor& image, const Tensor& made, const Moments& moments) const {
  const AutoencoderLoss& weights = options_.loss;
  const Tensor d = made - image;
  Tensor loss = weights.l1 * mean_of_samples(abs(d)) + weights.mse * mean_of_samples(square(d));
  if (weights.edges != 0)
    loss = loss + weights.edges * (mean_of_samples(abs(differences(d, 2))) + mean_of_samples(abs(differences(d, 1))));
  const Tensor divergence = -1.0 + (square(moments.mean) + (exp(moments.log_variance) - moments.log_variance));
  return loss + 0.5 * weights.kl * mean_of_samples(divergence);
}

AutoencoderStep::Result AutoencoderStep::train(const Vae& vae, const LoadedBatch& batch, double divisor) const {
  const Tensor image = pixels_of(batch);
  const Moments m = moments_of(vae, image);
  std::vector<float> noise(static_cast<size_t>(m.mean.numel()));
  const size_t one = noise.size() / batch.plan.samples.size();
  threads_->parallel_for(batch.size(), [&](int64_t i) {
    const auto b = static_cast<size_t>(i);
    CountedRandom(options_.seed, kLatentNoise, batch.plan.samples[b].index).normals(std::span(noise).subspan(b * one, one));
  });
  const Tensor drawn = Tensor::from(stream_, DType::F32, m.mean.shape(), std::span<const float>(noise));
  const Tensor latents = m.mean + exp(0.5 * m.log_variance) * drawn;
  const Tensor losses = losses_of(cast(image, DType::F32), decoded(vae, latents), m);

  Result result;
  std::vector<float> slopes;
  for (const float multiplier : batch.loss_multiplier) slopes.push_back(static_cast<float>(multiplier / divisor));
  result.gradients = backward(
      std::vector<Tensor>{losses},
      std::vector<Tensor>{Tensor::from(stream_, DType::F32, losses.shape(), std::span<const float>(slopes))}, GraphUse::Release);
  // The host waits for the losses only when everything is enqueued.
  result.losses = losses.to_doubles();
  for (size_t b = 0; b < result.losses.size(); ++b) result.losses[b] *= batch.loss_multiplier[b];
  return result;
}

AutoencoderStep::Reconstruction AutoencoderStep::reconstruct(const Vae& vae, const LoadedBatch& batch) const {
  const Tensor image = pixels_of(batch);
  const Moments m = moments_of(vae, image);
  const Tensor made = decoded(vae, m.mean);
  Reconstruction result;
  result.losses = losses_of(cast(image, DType::F32), made, m).to_doubles();
  const std::vector<float> values = made.to_floats();
  const auto width = static_cast<int>(made.dim(2)), height = static_cast<int>(made.dim(1));
  const size_t one = values.size() / batch.plan.samples.size();
  for (size_t b = 0; b < batch.plan.samples.size(); ++b) {
    result.originals.push_back(image_of(std::span(batch.pixels).subspan(b * one, one), width, height));
    result.images.push_back(image_of(std::span(values).subspan(b * one, one), width, height));
    result.psnr.push_back(psnr_of(result.originals.back(), result.images.back()));
  }
  return result;
}

LatentStatistics measure_latents(const Vae& vae, const TrainingSet& data, uint64_t seed, int64_t most, Stream& stream,
                                 DType activations) {
  const auto channels = static_cast<size_t>(vae.config.packed_channels());
  std::vector<double> sums(channels), squares(channels);
  double count = 0;
  LatentStatistics result;
  for (BatchPlan plan : data.epoch(seed, 0)) {
    if (result.images >= most) break;
    const auto left = static_cast<size_t>(most - result.images);
    if (plan.samples.size() > left) plan.samples.resize(left);
    const LoadedBatch batch = data.load(plan);
    const Shape shape{batch.size(), 16 * plan.size.rows, 16 * plan.size.columns, 3};
    const Tensor image = Tensor::from(stream, activations, shape, std::span<const float>(batch.pixels));
    const Tensor mean = narrow(vae.encode_moments(image), 3, 0, vae.config.latent_channels);
    const std::vector<float> packed = patchify(cast(mean, DType::F32)).to_floats();
    for (size_t i = 0; i < packed.size(); ++i) {
      sums[i % channels] += packed[i];
      squares[i % channels] += double{packed[i]} * packed[i];
    }
    const size_t positions = packed.size() / channels;
    count += static_cast<double>(positions);
    result.images += batch.size();
  }
  for (size_t c = 0; c < channels; ++c) {
    const double mean = sums[c] / count;
    result.mean.push_back(mean);
    result.variance.push_back(std::max(0.0, squares[c] / count - mean * mean));
  }
  return result;
}

}  // namespace flux2
