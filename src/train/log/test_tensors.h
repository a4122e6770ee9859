#pragma once

#include <cstdint>
#include <string>

#include "train/log/checkpoint_file.h"

// For tests only.
namespace flux2 {

// F32 values that a formula gives, so that other programs can make the same: (i · 37 mod 1000) / 500 − 1.
inline Tensor formula_tensor(const Shape& shape) {
  Tensor t = Tensor::host_empty(DType::F32, shape);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = static_cast<float>(i * 37 % 1000) / 500.0f - 1.0f;
  return t;
}

inline Tensor byte_tensor(int64_t count) {
  Tensor t = Tensor::host_empty(DType::U8, {count});
  for (int64_t i = 0; i < count; ++i) t.data<uint8_t>()[i] = static_cast<uint8_t>(i * 7);
  return t;
}

}  // namespace flux2
