#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

// A tensor of a file that torch.save wrote.
struct PickledTensor {
  std::string name;
  DType dtype = DType::F32;
  Shape shape, strides;                // strides in elements
  std::span<const std::byte> storage;  // from its first element on

  Tensor open() const;  // contiguous, in host memory of its own
};

// The tensors of a state dictionary in a .pth file, in the order of the file: those under the key params_ema, else params, else
// at the top. The file's bytes must outlive them.
//
// A pickle is a program that can call any function of the machine that reads it. This reader runs nothing: it knows the few
// instructions that a dictionary of tensors needs, and no function but those that make tensors and dictionaries. Everything else
// is refused by its name (BadFile).
std::vector<PickledTensor> read_torch_pickle(std::span<const std::byte> file);

}  // namespace flux2
