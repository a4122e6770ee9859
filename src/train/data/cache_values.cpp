#include "train/data/cache_values.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "weights/read_values.h"

namespace flux2 {

void check_architecture(const std::map<std::string, std::string>& metadata, const CacheModel& model) {
  const auto at = metadata.find("architecture");
  if (at == metadata.end()) fail(ErrorCode::BadFile, "it is not a cache: its metadata name no architecture");
  if (at->second != model.full_name)
    fail(ErrorCode::Incompatible, "it is a cache of {}, not of {}", printable(at->second), model.full_name);
}

std::vector<float> floats_of(const StoredTensor& tensor) {
  if (!tensor.dtype || !is_readable(*tensor.dtype))
    fail(ErrorCode::BadFile, "the tensor {} has the type {}, which is not a float", tensor.name, tensor.dtype_name);
  std::vector<float> values(static_cast<size_t>(tensor.shape.numel()));
  read_values(*tensor.dtype, tensor.bytes.data(), tensor.shape.numel(), values.data());
  return values;
}

Tensor rounded_tensor(const std::vector<float>& values, DType dtype, const Shape& shape) {
  if (dtype == DType::F32) return Tensor::host_copy(values.data(), dtype, shape);
  std::vector<uint16_t> bits(values.size());
  for (size_t i = 0; i < values.size(); ++i) bits[i] = dtype == DType::BF16 ? to_bf16(values[i]).bits : to_f16(values[i]).bits;
  return Tensor::host_copy(bits.data(), dtype, shape);
}

void replace_nans(std::vector<float>& values, const std::string& name, const std::filesystem::path& path, const Log& log) {
  const auto nans = std::count_if(values.begin(), values.end(), [](float v) { return std::isnan(v); });
  if (nans == 0) return;
  log.warn("{}: {} of {} values of {} are not numbers; they are replaced by 0", path.string(), nans, values.size(), name);
  std::replace_if(
      values.begin(), values.end(), [](float v) { return std::isnan(v); }, 0.0f);
}

}  // namespace flux2
