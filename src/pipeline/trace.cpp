#include "pipeline/trace.h"

#include "weights/safetensors_writer.h"

namespace flux2 {

void Trace::add(const std::string& name, const Tensor& value, const Shape& shape) { add_floats(name, value.to_floats(), shape); }

void Trace::add_floats(const std::string& name, const std::vector<float>& values, const Shape& shape) {
  check(static_cast<int64_t>(values.size()) == shape.numel(), "trace {}: {} values for shape {}", name, values.size(), shape);
  tensors_.emplace_back(name, Tensor::host_copy(values.data(), DType::F32, shape));
}

void Trace::add_ints(const std::string& name, const std::vector<int32_t>& values) {
  tensors_.emplace_back(name, Tensor::host_copy(values.data(), DType::I32, {static_cast<int64_t>(values.size())}));
}

void Trace::save(const std::filesystem::path& path) const { save_tensors(path, tensors_, {}); }

}  // namespace flux2
