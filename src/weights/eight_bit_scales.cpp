#include "weights/eight_bit_scales.h"

#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr std::string_view kWeight = "weight";
constexpr std::string_view kLargest = "SCB";
constexpr std::array<std::string_view, 4> kScales = {"weight_scale", "scale_weight", "weight_scale_inv", kLargest};
constexpr std::array<std::string_view, 3> kOthers = {"input_scale", "scale_input", "weight_format"};

bool is_eight_bit_matrix(const StoredTensor& t) {
  const bool fits = t.dtype == DType::F8_E4M3 || t.dtype == DType::F8_E5M2 || t.dtype == DType::I8;
  return fits && !t.quantised && t.shape.rank() == 2 && t.name.ends_with(kWeight);
}

const StoredTensor* beside(const WeightSource& source, const StoredTensor& weight, std::string_view name) {
  return source.find(weight.name.substr(0, weight.name.size() - kWeight.size()) + std::string(name));
}

}  // namespace

const StoredTensor* scale_beside(const WeightSource& source, const StoredTensor& weight) {
  if (!is_eight_bit_matrix(weight)) return nullptr;
  for (std::string_view name : kScales)
    if (const StoredTensor* found = beside(source, weight, name)) return found;
  return nullptr;
}

std::vector<const StoredTensor*> companions_of(const WeightSource& source, const StoredTensor& weight) {
  std::vector<const StoredTensor*> found;
  if (!is_eight_bit_matrix(weight)) return found;
  if (const StoredTensor* scale = scale_beside(source, weight)) found.push_back(scale);
  for (std::string_view name : kOthers)
    if (const StoredTensor* scale = beside(source, weight, name)) found.push_back(scale);
  return found;
}

float unit_of(const StoredTensor& scale) { return scale.name.ends_with(kLargest) ? 1.0f / 127.0f : 1.0f; }

std::vector<float> row_scales(const StoredTensor& weight, const StoredTensor& scale) {
  const int64_t rows = weight.shape[0], count = scale.shape.numel();
  const bool per_row = scale.shape == Shape{rows} || scale.shape == Shape{rows, 1};
  if (!per_row && count != 1)
    fail(ErrorCode::Incompatible, "tensor {} of shape {} has neither one factor nor one per row of {} {}", scale.name,
         scale.shape, weight.name, weight.shape);
  if (!is_float(dtype_of(scale)))
    fail(ErrorCode::Incompatible, "tensor {} holds factors as {}, expected F32, F16 or BF16", scale.name, scale.dtype_name);
  std::vector<float> stored = open_tensor(scale).to_floats();
  for (float& factor : stored) {
    if (!std::isfinite(factor) || factor < 0.0f)
      fail(ErrorCode::BadFile, "tensor {} holds {}, which is not a valid factor for {}", scale.name, factor, weight.name);
    factor *= unit_of(scale);
  }
  return per_row ? stored : std::vector<float>(static_cast<size_t>(rows), stored[0]);
}

}  // namespace flux2
