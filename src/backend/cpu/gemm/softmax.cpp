#include "backend/cpu/gemm/softmax.h"

#include <algorithm>
#include <cstring>

namespace flux2::gemm {

namespace {

// Four floats in a register of any machine we build for. Written out because the compiler keeps a loop with the
// comparisons below scalar.
using Floats = float __attribute__((vector_size(16)));
using Ints = int32_t __attribute__((vector_size(16)));

constexpr int kWidth = 4, kGroup = static_cast<int>(kSoftmaxLanes) / kWidth;  // vectors in flight

inline Floats load(const float* values) {
  Floats v;
  std::memcpy(&v, values, sizeof v);
  return v;
}

inline void save(float* values, Floats v) { std::memcpy(values, &v, sizeof v); }

// Rounds to nearest even. The values are at least 0, and the NaNs of arithmetic survive the carry.
inline void save(bf16* values, Floats v) {
  using Words = uint32_t __attribute__((vector_size(16)));
  using Halves = uint16_t __attribute__((vector_size(8)));
  const Words u = (Words)v;
  const Halves rounded = __builtin_convertvector((u + 0x7fffu + ((u >> 16) & 1u)) >> 16, Halves);
  std::memcpy(values, &rounded, sizeof rounded);
}

// exp of x ≤ 0 to about 1.5e-7, exactly 0 below −87: x = i·ln 2 + r, and a series in r.
inline Floats exp_of(Floats x) {
  constexpr float kRounder = 12582912.0f;  // 1.5 · 2^23: adding it leaves the nearest integer in the low bits
  const Ints in_range = ~(x < -87.0f);  // so that NaN stays NaN
  const Floats clamped = (Floats)((Ints)x & in_range);
  const Floats shifted = clamped * 1.44269504f + kRounder;
  const Floats i = shifted - kRounder;
  const Floats r = (clamped - i * 0.693359375f) - i * -2.12194440e-4f;
  Floats series = r * (1.0f / 720) + 1.0f / 120;
  series = series * r + 1.0f / 24;
  series = series * r + 1.0f / 6;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const Ints power = ((Ints)shifted + 127) << 23;
  return (Floats)((Ints)(series * (Floats)power) & in_range);
}

float max_of(float start, const float* values, int64_t n) {
  Floats largest[kGroup];
  for (Floats& v : largest) v = Floats{} + start;
  for (int64_t i = 0; i < n; i += kSoftmaxLanes)
    for (int g = 0; g < kGroup; ++g) {
      const Floats v = load(values + i + kWidth * g);
      largest[g] = v > largest[g] ? v : largest[g];
    }
  float max = start;
  for (const Floats& v : largest)
    for (int l = 0; l < kWidth; ++l) max = std::max(max, v[l]);
  return max;
}

// Writes exp(score − max); returns the sum.
template <class T>
float exp_all(const float* scores, int64_t n, float max, T* weights) {
  Floats sums[kGroup] = {};
  for (int64_t i = 0; i < n; i += kSoftmaxLanes) {
    Floats e[kGroup];  // all of a group before any is stored, so that the four chains overlap
    for (int g = 0; g < kGroup; ++g) e[g] = exp_of(load(scores + i + kWidth * g) - max);
    for (int g = 0; g < kGroup; ++g) {
      save(weights + i + kWidth * g, e[g]);
      sums[g] += e[g];
    }
  }
  const Floats sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

}  // namespace

template <class T>
float softmax_step(SoftmaxState& state, const float* scores, int64_t n, T* weights) {
  const float max = max_of(state.max, scores, n);
  // With nothing to see yet any finite maximum makes zeros of −∞, and leaves NaN what it is.
  const float reference = max == -std::numeric_limits<float>::infinity() ? 0.0f : max;
  const float factor = exp_of(Floats{} + (state.max - reference))[0];
  state.sum = state.sum * factor + exp_all(scores, n, reference, weights);
  state.max = max;
  return factor;
}

template float softmax_step(SoftmaxState&, const float*, int64_t, float*);
template float softmax_step(SoftmaxState&, const float*, int64_t, bf16*);

}  // namespace flux2::gemm
