#pragma once

#include <cstdint>
#include <limits>

#include "backend/cpu/gemm/output.h"
#include "tensor/dtype.h"

namespace flux2::gemm {

// The state of the softmax of one query. The weight of a key is 2^score. `max` is the largest score so far, and `sum` is Σ
// 2^(score − max) over the keys so far.
struct SoftmaxState {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;
};

// Adds n whole pieces of scores to the state. A piece has 8, 12, 16 or 32 scores; −∞ marks keys that the query must not see.
// Writes 2^(score − max) with the new max to `weights`, rounded to T (float or bf16). For bf16, the values before rounding are
// accurate to 4e-5. The sum uses the values before rounding. Returns the factor for sums that were computed with the old max.
template <class T>
float softmax_step(SoftmaxState& state, Pieces scores, int64_t n, T* weights);

// sums = sums · factor + values, for a piece of n: 8, 12, 16 or 32.
void scale_and_add(int64_t n, float factor, const float* values, float* sums);

}  // namespace flux2::gemm
