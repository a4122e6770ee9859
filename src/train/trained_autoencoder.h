#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/vae.h"
#include "train/log/checkpoint_file.h"
#include "train/trained_model.h"
#include "weights/named_weights.h"

namespace flux2 {

struct TrainedAutoencoderOptions {
  DType dtype = DType::F32;         // of the trained weights: F32, or BF16 with stochastic rounding
  DType activations = DType::F32;   // in which the network computes
  std::vector<std::string> freeze;  // patterns for names of tensors that stay as they are, found anywhere in them
};

// An autoencoder whose own weights are trained. They are copied, so that the loaded model does not change. The statistics of its
// latents are no parameters: they are measured before each file is written.
class TrainedAutoencoder final : public TrainedModel {
 public:
  // Throws Incompatible if the encoder is missing or a weight to train is quantised, InvalidArgument if everything is frozen.
  TrainedAutoencoder(const Vae& base, std::shared_ptr<const NamedWeights> source, Stream& stream,
                     const TrainedAutoencoderOptions& options);

  Vae recorded() const;  // for a pass with gradients
  Vae plain() const;     // the same without

  size_t modules() const override { return parameters_.size(); }
  NormReport limit_norms(double limit) override;
  std::vector<std::pair<std::string, Tensor>> tensors() const override;  // as the source names and stores them
  NamedTensors weights() const;                                          // the parameters alone, for states
  void attach_for_sampling(Flux2Transformer& /*copy*/) const override {}

  // Whether the encoder changes. If it does not, neither do latents and their statistics, and transformers still fit.
  bool trains_encoder() const;
  void set_statistics(const std::vector<double>& mean, const std::vector<double>& variance);

 private:
  Vae vae_;
  std::shared_ptr<const NamedWeights> source_;
  DType activations_;
};

}  // namespace flux2
