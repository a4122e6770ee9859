#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

enum class ParameterKind {
  Matrix,     // [out, in], kept as the file stores it
  Vector,     // norms and biases: small, converted to the dtype of the activations
  Conv,       // [O, I, kh, kw] in files, [O, kh, kw, I] in memory
  Table,      // embeddings, read row by row
  Statistic,  // always F32
};

// How a parameter is divided when a model is spread over ranks. `parts` are the extents of the parts of a fused weight (q, k, v,
// …). Each part is divided separately, so heads stay whole.
struct Spread {
  enum Kind { Whole, Rows, Columns } kind = Whole;
  std::vector<int64_t> parts;
};

// One tensor of a model, with its name and shape in files.
struct Parameter {
  std::string name;
  Tensor& tensor;
  Shape shape;
  ParameterKind kind = ParameterKind::Matrix;
  const Spread& spread;
};

// Each struct of layers lists its tensors once, in visit(prefix, visitor); loading, counting, synthesising,
// quantising, training and saving all walk that list.
using ParameterVisitor = std::function<void(const Parameter&)>;

inline const Spread kWhole{};

}  // namespace flux2
