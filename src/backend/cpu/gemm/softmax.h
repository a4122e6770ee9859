#pragma once

#include <cstdint>
#include <limits>

#include "tensor/dtype.h"

namespace flux2::gemm {

// Σ exp so far over the keys one query has seen, kept relative to the largest score.
struct SoftmaxState {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;
};

constexpr int64_t kSoftmaxLanes = 16;

// Takes in n more scores (a multiple of kSoftmaxLanes; −∞ marks what must not be seen) and writes exp(score − max) for
// the new max, rounded to T (float or bf16; the sum is of what was not rounded). Returns the factor by which what was
// summed under the old max must be multiplied.
template <class T>
float softmax_step(SoftmaxState& state, const float* scores, int64_t n, T* weights);

}  // namespace flux2::gemm
