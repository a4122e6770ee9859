#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "nn/parameter.h"

namespace flux2 {

// How the invented values of one tensor are distributed.
struct ValueRange {
  float mean = 0, deviation = 1;
};

// A distribution under which activations neither explode nor vanish: matrices by the square root of their inputs,
// outputs of residual branches halved, gates of a few tenths, norms near one.
ValueRange sane_values(const std::string& name, const Shape& shape, ParameterKind kind);

// The values of one canonical tensor, BF16 or F32. Element i depends on the seed, the name and i alone, so that any
// cut of a tensor, in any order, gives the same values; BF16 values are the F32 ones rounded.
class SynthValues {
 public:
  SynthValues(uint64_t seed, const std::string& name, const ValueRange& range, DType dtype);

  // Elements [begin, begin + n) into `out`, n being what fits.
  void fill(int64_t begin, std::span<std::byte> out, ThreadPool& pool) const;

 private:
  template <class T>
  void fill_range(int64_t begin, std::span<T> out, const std::vector<T>& table) const;

  uint64_t seed_, stream_;
  DType dtype_;
  std::vector<float> f32_;  // quantiles of the distribution, as they are written
  std::vector<uint16_t> bf16_;
};

// Normal values that depend on the name alone.
Tensor random_tensor(Stream& stream, DType dtype, const Shape& shape, const std::string& name);

}  // namespace flux2
