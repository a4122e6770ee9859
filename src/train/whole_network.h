#pragma once

#include <string>
#include <vector>

#include "train/trained_model.h"

namespace flux2 {

struct WholeNetworkOptions {
  DType dtype = DType::F32;         // of the trained weights: F32, or BF16 with stochastic rounding
  std::vector<std::string> freeze;  // patterns for names of tensors that stay as they are, found anywhere in them
};

// A transformer whose own weights are trained. They are copied, so that the loaded model does not change.
class WholeNetwork final : public TrainedModel {
 public:
  // Throws Incompatible if a weight to train is quantised, InvalidArgument if everything is frozen.
  WholeNetwork(Flux2Transformer& network, Stream& stream, const WholeNetworkOptions& options);

  size_t modules() const override { return parameters_.size(); }
  NormReport limit_norms(double limit) override;
  std::vector<std::pair<std::string, Tensor>> tensors() const override;  // frozen ones included
  void attach_for_sampling(Flux2Transformer& copy) const override;

 private:
  Flux2Transformer& network_;
};

}  // namespace flux2
