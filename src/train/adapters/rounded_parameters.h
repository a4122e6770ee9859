#pragma once

#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

// Trained F32 tensors side by side in memory, with a copy of all of them in the dtype of the activations: one kernel rounds them
// once a step, instead of every product its own operands.
class RoundedParameters {
 public:
  RoundedParameters() = default;
  // Moves the values, which need a stream, into a common block: afterwards they are leaves (parameter()) in new memory.
  RoundedParameters(const std::vector<Tensor*>& values, DType dtype);

  bool empty() const { return copies_.empty(); }
  const Tensor& operator[](size_t i) const { return copies_[i]; }
  // Must be called after the values have changed.
  void refresh() const;

 private:
  Tensor values_, rounded_;  // of all
  std::vector<Tensor> copies_;
};

}  // namespace flux2
