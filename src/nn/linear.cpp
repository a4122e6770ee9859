#include "nn/linear.h"

#include <algorithm>

#include "ops/activation.h"
#include "ops/all_reduce.h"
#include "ops/linear.h"
#include "ops/view.h"

namespace flux2 {

Tensor Linear::operator()(const Tensor& x_all, Values values) const {
  if (change) return change->apply(*this, x_all, values);
  const bool sharded = ranks && ranks->size() > 1;
  const Tensor x = sharded && spread.kind == Spread::Rows ? flux2::spread(x_all, *ranks) : x_all;
  const Tensor y = lora_linear(x, weight, bias, adapters, sharded ? Values::Needed : values);
  return sharded && spread.kind == Spread::Columns ? all_reduce(y, *ranks) : y;
}

Tensor Linear::then_swiglu(const Tensor& x, const Linear& next) const {
  if (is_plain() && fuses_swiglu(x, weight)) return linear_swiglu(x, weight);
  const Tensor u = (*this)(x);
  return swiglu(u, next.takes(u));
}

Linear Linear::outputs(int64_t first, int64_t count) const {
  require(!change, "some outputs of a layer with a change");
  Linear part = *this;
  part.out = count;
  part.weight = narrow(weight, 0, first, count);
  if (bias.defined()) part.bias = narrow(bias, 0, first, count);
  for (Lora& adapter : part.adapters) adapter.up = narrow(adapter.up, 0, first, count);
  return part;
}

// Adapters read the input too, and ranks sum their results: both need it unquantised.
DType Linear::takes(const Tensor& x) const { return is_plain() ? input_dtype(x, weight) : x.dtype(); }

DType takes(const Tensor& x, std::initializer_list<const Linear*> readers) {
  const DType first = (*readers.begin())->takes(x);
  const bool agree = std::all_of(readers.begin(), readers.end(), [&](const Linear* l) { return l->takes(x) == first; });
  return agree ? first : x.dtype();
}

void Linear::visit(const std::string& name, const ParameterVisitor& visitor) {
  visitor({name + ".weight", weight, {out, in}, ParameterKind::Matrix, spread});
  if (has_bias) visitor({name + ".bias", bias, {out}, ParameterKind::Vector, kWhole});
}

}  // namespace flux2
