#pragma once

#include <functional>
#include <string>

#include "tensor/tensor.h"

namespace flux2 {

// Called with intermediate results under the reference's names, so that tests can say which block diverges first.
using Taps = std::function<void(const std::string& name, const Tensor& value)>;

// Called on the host before each block of a network is computed. An exception that it throws ends the pass.
using BeforeBlock = std::function<void()>;

inline void tap(const Taps& taps, const std::string& name, const Tensor& value) {
  if (taps) taps(name, value);
}

}  // namespace flux2
