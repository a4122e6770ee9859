#include "weights/fp8_scales.h"

#include <array>
#include <cmath>
#include <string>
#include <string_view>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr std::string_view kWeight = "weight";
constexpr std::array<std::string_view, 3> kScales = {"weight_scale", "scale_weight", "weight_scale_inv"};
constexpr std::array<std::string_view, 2> kInputScales = {"input_scale", "scale_input"};

bool is_fp8_matrix(const StoredTensor& t) {
  return (t.dtype == DType::F8_E4M3 || t.dtype == DType::F8_E5M2) && t.shape.rank() == 2 && t.name.ends_with(kWeight);
}

const StoredTensor* beside(const WeightSource& source, const StoredTensor& weight, std::string_view name) {
  return source.find(weight.name.substr(0, weight.name.size() - kWeight.size()) + std::string(name));
}

}  // namespace

const StoredTensor* fp8_scale_of(const WeightSource& source, const StoredTensor& weight) {
  if (!is_fp8_matrix(weight)) return nullptr;
  for (std::string_view name : kScales)
    if (const StoredTensor* found = beside(source, weight, name)) return found;
  return nullptr;
}

std::vector<const StoredTensor*> fp8_companions(const WeightSource& source, const StoredTensor& weight) {
  std::vector<const StoredTensor*> found;
  if (!is_fp8_matrix(weight)) return found;
  if (const StoredTensor* scale = fp8_scale_of(source, weight)) found.push_back(scale);
  for (std::string_view name : kInputScales)
    if (const StoredTensor* scale = beside(source, weight, name)) found.push_back(scale);
  return found;
}

std::vector<float> fp8_row_scales(const StoredTensor& weight, const StoredTensor& scale) {
  const int64_t rows = weight.shape[0], count = scale.shape.numel();
  const bool per_row = scale.shape == Shape{rows} || scale.shape == Shape{rows, 1};
  if (!per_row && count != 1)
    fail(ErrorCode::Incompatible, "tensor {} of shape {} holds no factor for the whole and none for each row of {} {}", scale.name,
         scale.shape, weight.name, weight.shape);
  if (!is_float(dtype_of(scale)))
    fail(ErrorCode::Incompatible, "tensor {} holds factors as {}, expected F32, F16 or BF16", scale.name, scale.dtype_name);
  const std::vector<float> stored = open_tensor(scale).to_floats();
  for (float factor : stored)
    if (!std::isfinite(factor) || factor < 0.0f)
      fail(ErrorCode::BadFile, "tensor {} holds {}, which is no factor for {}", scale.name, factor, weight.name);
  return per_row ? stored : std::vector<float>(static_cast<size_t>(rows), stored[0]);
}

}  // namespace flux2
