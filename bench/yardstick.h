#pragma once

#include <cstdint>

namespace bench {

// An established single-precision product to hold ours against: y[m, n] = x[m, k] · w[n, k]ᵀ on all cores.
const char* yardstick_name();
void yardstick_sgemm(int64_t m, int64_t n, int64_t k, const float* x, const float* w, float* y);

}  // namespace bench
