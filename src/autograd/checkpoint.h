#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

using Block = std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>;

// Runs a block and keeps only its inputs: the block is run again when its gradient is needed. Weights that the block captures get
// gradients, too. Both runs execute the same kernels, so the gradient has the same bits as without checkpoint(). The block must
// not depend on anything that changes in between, except as follows: `hold`, if given, is called before the second run, and what
// it returns lives until the block's gradient is computed. A block whose weights are not always in memory loads them there.
using HoldBlock = std::function<std::shared_ptr<const void>()>;
std::vector<Tensor> checkpoint(const Block& block, const std::vector<Tensor>& inputs, const HoldBlock& hold = {});
Tensor checkpoint(const std::function<Tensor(const Tensor&)>& block, const Tensor& input);

}  // namespace flux2
