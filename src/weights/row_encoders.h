#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace flux2 {

// The inner loops of quantising, in the form that is fastest on this machine. All forms give the same bytes.
struct RowEncoders {
  void (*widen_bf16)(const void* values, int64_t count, float* out);           // `values` need no alignment
  float (*largest_magnitude)(const float* x, int64_t count);                   // NaN counts as the largest
  void (*to_int8)(const float* x, int64_t count, float factor, int8_t* out);   // see round_values.h
  void (*to_e4m3)(const float* x, int64_t count, float factor, uint8_t* out);  // see round_values.h
  void (*to_q8_0)(const float* x, int64_t count, void* out);                   // see encode_blocks.h
  void (*to_q4_0)(const float* x, int64_t count, void* out);
};

const RowEncoders& row_encoders();

// In encode_blocks.cpp, which is compiled without contraction.
void portable_q8_0(const float* x, int64_t count, void* out);
void portable_q4_0(const float* x, int64_t count, void* out);

// For tests.
const RowEncoders& portable_row_encoders();
const RowEncoders* avx2_row_encoders();  // null in builds for other processors, and where the processor lacks AVX2

}  // namespace flux2
