#include "nn/timestep.h"

#include <cmath>
#include <vector>

namespace flux2 {

Tensor timestep_embedding(Stream& stream, std::span<const float> arguments, DType dtype) {
  constexpr int half = kTimestepWidth / 2;
  const auto log_period = static_cast<float>(-std::log(10000.0));
  std::vector<float> values;
  values.reserve(arguments.size() * kTimestepWidth);
  for (float a : arguments) {
    const auto angle = [&](int k) { return a * std::exp(log_period * static_cast<float>(k) / static_cast<float>(half)); };
    for (int k = 0; k < half; ++k) values.push_back(std::cos(angle(k)));
    for (int k = 0; k < half; ++k) values.push_back(std::sin(angle(k)));
  }
  return Tensor::from<float>(stream, dtype, {static_cast<int64_t>(arguments.size()), kTimestepWidth}, values);
}

}  // namespace flux2
