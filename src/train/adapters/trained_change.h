#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nn/linear.h"

namespace flux2 {

// The random draws of one pass that dropouts depend on. The network fills it before every pass; all changes share it.
struct DropoutDraws {
  bool active = false;  // only while training
  uint64_t seed = 0;
  std::vector<uint64_t> samples;  // the global index of each sample of the batch
};

struct DropoutRates {
  double element = 0;  // of the values between the two matrices (LoRA only)
  double rank = 0;     // LoRA: of whole ranks, for each sample; others: of whole output rows
  double module = 0;   // of the whole change, for each sample

  bool any() const { return element > 0 || rank > 0 || module > 0; }
};

// One trained tensor of a layer.
struct TrainedPart {
  std::string role;     // its suffix in files: "lora_down.weight"
  Tensor value;         // F32, contiguous, updated in place; a leaf for autograd
  Tensor rounded = {};  // its values in the dtype of the activations, if the network keeps them (RoundedParameters)
};

// The trained change of one linear layer: W ↦ W + ΔW. It computes the layer's whole output.
class TrainedChange : public LayerChange {
 public:
  const std::vector<TrainedPart>& parts() const { return parts_; }
  std::vector<TrainedPart>& parts() { return parts_; }  // for a network that gives them other memory
  double alpha() const { return alpha_; }               // as saved
  // Scales the parts so that ‖ΔW‖ is at most `limit` and returns the norm after it, or nothing if this kind does not support it.
  struct LimitedNorm {
    double norm = 0;
    bool scaled = false;
  };
  virtual std::optional<LimitedNorm> limit_norm(double /*limit*/) { return std::nullopt; }
  // Must be called after the parts have changed (an optimiser step, loading).
  virtual void refresh(const Linear& /*layer*/) {}
  // A copy that shares the parts' memory, for images between steps: no gradients, no dropouts.
  virtual std::shared_ptr<TrainedChange> for_sampling() const = 0;

  size_t module_index = 0;  // its place in the list of all layers; random numbers depend on it
  DropoutRates dropout;
  std::shared_ptr<const DropoutDraws> draws;

 protected:
  void add_part(std::string role, Stream& stream, const Shape& shape, std::span<const float> values);
  const Tensor& part(size_t i) const { return parts_[i].value; }
  const Tensor& rounded(size_t i) const { return parts_[i].rounded; }
  template <class Change>
  static std::shared_ptr<TrainedChange> sampling_copy(const Change& change) {
    auto copy = std::make_shared<Change>(change);
    for (TrainedPart& p : copy->parts_) p = {p.role, p.value.detached()};
    copy->dropout = {};
    return copy;
  }
  // The factor [B, 1, 1] that skips the change for some samples of x [B, S, K]; undefined if nothing is skipped.
  Tensor module_mask(const Tensor& x) const;
  // The factor [rows] for output rows of ΔW; undefined without rank dropout.
  Tensor row_mask(const Tensor& x, int64_t rows) const;

  std::vector<TrainedPart> parts_;
  double alpha_ = 1;
};

// How a change begins: as new, from a seed, or with given values.
struct ChangeStart {
  uint64_t seed = 0;
  size_t module_index = 0;
};

struct LoraShape {
  int64_t dim = 4;
  double alpha = 1;              // 0: dim
  bool dora = false;             // a trained magnitude for each output row
  bool rank_stabilised = false;  // alpha / √dim instead of alpha / dim
};

// ΔW = scale · up · down, with dropouts and, for DoRA, magnitudes m: y = m / ‖W + ΔW‖ · (W + ΔW) x, the norm by output rows and
// without gradient.
std::shared_ptr<TrainedChange> new_lora(const Linear& layer, Stream& stream, const LoraShape& shape, const ChangeStart& start);
// ΔW = scale · (w1_a · w1_b) ∘ (w2_a · w2_b)
std::shared_ptr<TrainedChange> new_loha(const Linear& layer, Stream& stream, int64_t dim, double alpha, const ChangeStart& start);
// ΔW = scale · kron(w1, w2); `factor` limits the size of w1, −1: as square as possible.
std::shared_ptr<TrainedChange> new_lokr(const Linear& layer, Stream& stream, int64_t dim, double alpha, int64_t factor,
                                        const ChangeStart& start);

// dimension = first · second with first ≤ second, as LoKr divides it.
struct FactorPair {
  int64_t first, second;
};
FactorPair lokr_factors(int64_t dimension, int64_t factor);

}  // namespace flux2
