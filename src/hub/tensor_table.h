#pragma once

#include <string>
#include <vector>

#include "tensor/shape.h"
#include "weights/weight_source.h"

namespace flux2 {

// Tensors that differ only in the numbers inside their names: the same layer of every block.
struct TensorGroup {
  std::string name;  // "double_blocks.*.img_attn.qkv.weight"
  Shape shape;
  std::string type;  // "BF16"
  int64_t count = 0, parameters = 0;
};

// The tensors of a file whose names begin with `prefix`, in file order. Tensors of different shapes or types are in groups of
// their own.
std::vector<TensorGroup> tensor_groups(const WeightSource& source, const std::string& prefix = {});

}  // namespace flux2
