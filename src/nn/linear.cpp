#include "nn/linear.h"

#include "ops/activation.h"
#include "ops/all_reduce.h"
#include "ops/linear.h"

namespace flux2 {

Tensor Linear::operator()(const Tensor& x_all) const {
  const bool sharded = ranks && ranks->size() > 1;
  const Tensor x = sharded && spread.kind == Spread::Rows ? flux2::spread(x_all, *ranks) : x_all;
  const Tensor y = lora_linear(x, weight, bias, adapters);
  return sharded && spread.kind == Spread::Columns ? all_reduce(y, *ranks) : y;
}

Tensor Linear::then_swiglu(const Tensor& x) const { return is_plain() ? linear_swiglu(x, weight) : swiglu((*this)(x)); }

void Linear::visit(const std::string& name, const ParameterVisitor& visitor) {
  visitor({name + ".weight", weight, {out, in}, ParameterKind::Matrix, spread});
  if (has_bias) visitor({name + ".bias", bias, {out}, ParameterKind::Vector, kWhole});
}

}  // namespace flux2
