#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "autograd/grad.h"
#include "base/thread_pool.h"
#include "image/image.h"
#include "model/vae.h"
#include "train/data/training_set.h"

namespace flux2 {

// loss = l1 · mean|d| + mse · mean d² + edges · (mean|∂x d| + mean|∂y d|) + kl · KL, with d = reconstruction − image in −1 … 1,
// ∂ the differences of neighbours, and KL the divergence of the latents from N(0, 1), averaged over their elements.
struct AutoencoderLoss {
  double l1 = 1, mse = 2, edges = 0.5, kl = 2e-5;
};

struct AutoencoderStepOptions {
  uint64_t seed = 0;  // of the noise in the latents
  AutoencoderLoss loss;
  DType activations = DType::F32;
};

// One pass of an autoencoder: image → latents, drawn from their distribution → image.
class AutoencoderStep {
 public:
  AutoencoderStep(Stream& stream, const AutoencoderStepOptions& options)
      : stream_(stream), options_(options), threads_(std::make_unique<ThreadPool>(0)) {}

  struct Result {
    std::vector<double> losses;  // of each sample
    Gradients gradients;
  };
  // The gradients of the sum of the samples' losses, divided by `divisor`. The weights of `vae` are recorded.
  Result train(const Vae& vae, const LoadedBatch& batch, double divisor) const;

  // Reconstructions from the means of the latents.
  struct Reconstruction {
    std::vector<Image> originals, images;
    std::vector<double> losses, psnr;  // of each sample; the PSNR in dB, of 8-bit images
  };
  Reconstruction reconstruct(const Vae& vae, const LoadedBatch& batch) const;

 private:
  Tensor pixels_of(const LoadedBatch& batch) const;
  struct Moments {
    Tensor mean, log_variance;  // [B, H/8, W/8, 32] in F32
  };
  static Moments moments_of(const Vae& vae, const Tensor& image);
  Tensor decoded(const Vae& vae, const Tensor& latents) const;  // [B, H, W, 3] in F32
  Tensor losses_of(const Tensor& image, const Tensor& made, const Moments& moments) const;

  Stream& stream_;
  AutoencoderStepOptions options_;
  std::unique_ptr<ThreadPool> threads_;  // draw the noise: one would take longer than a GPU needs for a small step
};

// Mean and variance of each of the 128 channels of packed latents (Vae::encode before its normalisation), over the images of one
// epoch, `most` of them at most.
struct LatentStatistics {
  std::vector<double> mean, variance;
  int64_t images = 0;
};
LatentStatistics measure_latents(const Vae& vae, const TrainingSet& data, uint64_t seed, int64_t most, Stream& stream,
                                 DType activations);

}  // namespace flux2
