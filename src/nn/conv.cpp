#include "nn/conv.h"

#include "ops/norm.h"

namespace flux2 {

void Conv::visit(const std::string& name, const ParameterVisitor& visitor) {
  visitor({name + ".weight", weight, {out, in, size, size}, ParameterKind::Conv, kWhole});
  visitor({name + ".bias", bias, {out}, ParameterKind::Vector, kWhole});
}

Tensor GroupNorm::operator()(const Tensor& x) const { return group_norm(x, weight, bias, groups); }
Tensor GroupNorm::then_silu(const Tensor& x) const { return group_norm_silu(x, weight, bias, groups); }

void GroupNorm::visit(const std::string& name, const ParameterVisitor& visitor) {
  visitor({name + ".weight", weight, {channels}, ParameterKind::Vector, kWhole});
  visitor({name + ".bias", bias, {channels}, ParameterKind::Vector, kWhole});
}

}  // namespace flux2
