#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

// Records the tensors of one generation for comparison with the references (docs/trace.md). Values are copied to the host as F32
// (integers as I32), without the batch axis.
class Trace {
 public:
  void add(const std::string& name, const Tensor& value, const Shape& shape);
  void add_floats(const std::string& name, const std::vector<float>& values, const Shape& shape);
  void add_ints(const std::string& name, const std::vector<int32_t>& values);
  void save(const std::filesystem::path& path) const;

 private:
  std::vector<std::pair<std::string, Tensor>> tensors_;
};

}  // namespace flux2
