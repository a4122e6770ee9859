#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

using Block = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;

// Keeps tensors somewhere else until they are needed, such as in host memory.
class InputStore {
 public:
  virtual ~InputStore() = default;
  // Takes x over. The function that it returns is called at most once and gives back a tensor with the same values.
  virtual std::function<Tensor()> keep(const Tensor& x) = 0;
};

struct CheckpointOptions {
  // Is called before the second run; what it returns lives until the block's gradient is computed. A block whose weights are not
  // always in memory loads them there.
  std::function<std::shared_ptr<const void>()> hold = {};
  // Runs instead of the block the second time, when nobody reads the values of its outputs: it may leave them uncomputed.
  Block second = {};
  // If given, it keeps the first `stored` inputs between the two runs.
  InputStore* store = nullptr;
  size_t stored = 0;
};

// Runs a block and keeps only its inputs: the block is run again when its gradient is needed. Weights that the block captures get
// gradients, too. Both runs execute the same kernels, so the gradient has the same bits as without checkpoint(). The block must
// not depend on anything that changes in between.
std::vector<Tensor> checkpoint(const Block& block, const std::vector<Tensor>& inputs, const CheckpointOptions& options = {});
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& block, const Tensor& input);

}  // namespace flux2
