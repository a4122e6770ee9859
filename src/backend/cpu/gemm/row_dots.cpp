#include "backend/cpu/gemm/row_dots.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backend/cpu/gemm/compiler.h"

namespace flux2::gemm {

namespace {

// As integers magnitudes keep their order and NaNs lie above infinity.
FLUX2_CLONES float largest_of_block(const float* x) {
  uint32_t most = 0;
  for (int i = 0; i < kDotBlock; ++i) most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  return std::bit_cast<float>(most);
}

// Adding 1.5 · 2^23 leaves the nearest integer, ties to even, in the low bits.
FLUX2_CLONES int32_t round_block(const float* x, float inverse, int8_t* out) {
  int32_t sum = 0;
  for (int i = 0; i < kDotBlock; ++i) {
    out[i] = static_cast<int8_t>(std::bit_cast<uint32_t>(x[i] * inverse + 12582912.0f) & 0xffu);
    sum += out[i];
  }
  return sum;
}

}  // namespace

void quantise_for_dots(const float* x, int64_t k, int8_t* values, float* scales, float* sums) {
  for (int64_t b = 0; b * kDotBlock < k; ++b, values += kDotBlock) {
    float block[kDotBlock] = {};
    std::copy_n(x + b * kDotBlock, std::min<int64_t>(kDotBlock, k - b * kDotBlock), block);
    const float most = largest_of_block(block);
    // The smallest normal number keeps the inverse finite for zeros and almost zeros.
    scales[b] = std::isfinite(most) ? std::max(most / 127.0f, std::numeric_limits<float>::min())
                                    : std::numeric_limits<float>::quiet_NaN();
    sums[b] = scales[b] * static_cast<float>(round_block(block, 1.0f / scales[b], values));
  }
}

RowDot RowDots::of_integers(DType dtype) const {
  switch (dtype) {
    case DType::I8: return int8;
    case DType::Q8_0: return q8_0;
    case DType::Q4_0: return q4_0;
    case DType::Q4_1: return q4_1;
    case DType::Q5_0: return q5_0;
    case DType::Q5_1: return q5_1;
    case DType::IQ4_NL: return iq4_nl;
    case DType::Q2_K: return q2_k;
    case DType::Q3_K: return q3_k;
    case DType::Q4_K: return q4_k;
    case DType::Q5_K: return q5_k;
    case DType::Q6_K: return q6_k;
    case DType::IQ4_XS: return iq4_xs;
    case DType::NVFP4: return nvfp4;
    default: return nullptr;
  }
}

RowFloatDot RowDots::of_floats(DType dtype) const {
  switch (dtype) {
    case DType::F16: return f16;
    case DType::F8_E4M3: return f8_e4m3;
    case DType::F8_E5M2: return f8_e5m2;
    case DType::F8_128: return f8_128;
    default: return nullptr;
  }
}

}  // namespace flux2::gemm
