#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/text_encoder.h"
#include "train/log/checkpoint_file.h"
#include "train/trained_model.h"
#include "weights/named_weights.h"

namespace flux2 {

struct TrainedTextEncoderOptions {
  DType dtype = DType::F32;         // of the trained weights: F32, or BF16 with stochastic rounding
  DType activations = DType::F32;   // in which the network computes
  std::vector<std::string> freeze;  // patterns for names of tensors that stay as they are, found anywhere in them
};

// A model that is trained together with the text encoder that it reads. The encoder's parameters come after the model's and have
// names that begin with "text_encoder."; it is saved in a file of its own, as its source names and stores it. Layers behind the
// last state that the model reads stay as they are.
class TrainedTextEncoder final : public TrainedModel {
 public:
  // Throws Incompatible if a weight to train is quantised or the encoder does not fit into memory.
  TrainedTextEncoder(std::unique_ptr<TrainedModel> model, const TextEncoder& base, std::shared_ptr<const NamedWeights> source,
                     Stream& stream, const TrainedTextEncoderOptions& options);

  // The states [B, T, C] of tokens I32 [B, T], with gradients.
  Tensor states(const Tensor& ids, const Tensor& mask) const;
  TextEncoder plain() const;  // the encoder as it is now, without gradients

  size_t modules() const override { return model_->modules() + encoder_parameters_; }
  void begin_pass(const std::vector<uint64_t>& samples, bool training) override { model_->begin_pass(samples, training); }
  void refresh() override { model_->refresh(); }
  NormReport limit_norms(double limit) override { return model_->limit_norms(limit); }
  std::vector<std::pair<std::string, Tensor>> tensors() const override { return model_->tensors(); }
  std::vector<Companion> companions() const override;
  std::vector<std::pair<std::string, Tensor>> state_tensors() const override;
  void attach_for_sampling(Flux2Transformer& copy) const override { model_->attach_for_sampling(copy); }

 private:
  std::unique_ptr<TrainedModel> model_;
  TextEncoder encoder_;
  std::shared_ptr<const NamedWeights> source_;
  DType activations_;
  size_t encoder_parameters_ = 0;
};

}  // namespace flux2
