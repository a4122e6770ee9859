#include "train/initial_weights.h"

#include <cmath>

#include "base/counted_random.h"

namespace flux2 {

namespace {

constexpr uint32_t kInitialWeight = 42;  // what the numbers of CountedRandom are for

bool contains(const std::string& name, const char* word) { return name.find(word) != std::string::npos; }

std::vector<float> initial_values(const std::string& name, const Shape& shape, const CountedRandom& random) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  if (shape.rank() < 2) {
    std::fill(values.begin(), values.end(), name.ends_with(".bias") ? 0.0f : 1.0f);
  } else if (contains(name, "modulation") || contains(name, "embed_tokens")) {
    const float deviation = contains(name, "modulation") ? 0.01f : 0.02f;
    random.normals(values);
    for (float& v : values) v *= deviation;
  } else if (!name.ends_with("final_layer.linear.weight")) {
    // [out, in], or [out, kh, kw, in]: each output reads fan_in values, each input is read by fan_out.
    const auto fan_in = static_cast<double>(shape.numel() / shape[0]);
    const auto fan_out = static_cast<double>(shape.numel() / shape[-1]);
    const double bound = std::sqrt(6.0 / (fan_in + fan_out));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(bound * (2 * random.uniform(i) - 1));
  }
  return values;
}

}  // namespace

void initialise(const std::vector<TrainedParameter>& parameters, uint64_t seed) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor leaf = parameters[i].leaf.detached();
    const std::vector<float> values = initial_values(parameters[i].name, leaf.shape(), {seed, kInitialWeight, i});
    leaf.copy_from(Tensor::from(leaf.stream(), DType::F32, leaf.shape(), std::span<const float>(values)));
  }
}

}  // namespace flux2
