#pragma once

#include <cstdint>
#include <limits>

#include "backend/cpu/gemm/output.h"
#include "tensor/dtype.h"

namespace flux2::gemm {

// Scores are in powers of two: a key weighs 2^score. Σ 2^score so far over the keys one query has seen, kept relative to
// the largest of them.
struct SoftmaxState {
  float max = -std::numeric_limits<float>::infinity();
  float sum = 0.0f;
};

// Takes in n whole pieces of scores (−∞ marks what must not be seen), each of 8, 12, 16 or 32, and writes 2^(score − max)
// for the new max, rounded to T (float, or bf16, where what is rounded is itself good to 4e-5; the sum is of what was not
// rounded). Returns the factor by which what was summed under the old max must be multiplied.
template <class T>
float softmax_step(SoftmaxState& state, Pieces scores, int64_t n, T* weights);

// sums = sums · factor + values, for a piece of n: 8, 12, 16 or 32.
void scale_and_add(int64_t n, float factor, const float* values, float* sums);

}  // namespace flux2::gemm
