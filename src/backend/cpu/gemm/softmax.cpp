#include "backend/cpu/gemm/softmax.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/error.h"

namespace flux2::gemm {

namespace {

// Four floats in a register of any machine we build for. Written out because the compiler keeps a loop with the
// comparisons below scalar.
using Floats = float __attribute__((vector_size(16)));
using Ints = int32_t __attribute__((vector_size(16)));

constexpr int kWidth = 4;

inline Floats load(const float* values) {
  Floats v;
  std::memcpy(&v, values, sizeof v);
  return v;
}

inline void save(float* values, Floats v) { std::memcpy(values, &v, sizeof v); }

// Rounds to nearest, halves up. The values are at least 0, and the NaNs of arithmetic survive the carry.
inline void save(bf16* values, Floats v) {
  using Words = uint32_t __attribute__((vector_size(16)));
  using Halves = uint16_t __attribute__((vector_size(8)));
  const Words u = (Words)v;
  const Halves rounded = __builtin_convertvector((u + 0x8000u) >> 16, Halves);
  std::memcpy(values, &rounded, sizeof rounded);
}

// 2^x for x ≤ 0, exactly 0 below −126.5: x = i + f, and a series in f · ln 2 with |f| ≤ 1/2: good to 1.5e-7, and to 4e-5
// where bf16 keeps no more than 2e-3.
template <class T>
inline Floats power_of_two(Floats x) {
  constexpr float kRounder = 12582912.0f;  // 1.5 · 2^23: adding it leaves the nearest integer in the low bits
  const Floats clamped = x < -127.0f ? Floats{} - 127.0f : x;  // NaN stays NaN
  const Floats shifted = clamped + kRounder;
  const Floats f = clamped - (shifted - kRounder);
  Floats series;
  if constexpr (std::is_same_v<T, float>) {
    series = f * 1.5403530e-4f + 1.3333558e-3f;
    series = series * f + 9.6181291e-3f;
  } else {
    series = Floats{} + 9.6181291e-3f;
  }
  series = series * f + 5.5504109e-2f;
  series = series * f + 0.24022651f;
  series = series * f + 0.69314718f;
  series = series * f + 1.0f;
  const Ints power = ((Ints)shifted + 127) << 23;  // all bits 0 for i = −127
  return series * (Floats)power;
}

// Pieces of a length known here, so that their vectors stay in registers and their chains overlap.
template <int length>
float max_of(float start, Pieces scores, int64_t n) {
  constexpr int kVectors = length / kWidth;
  Floats largest[kVectors];
  for (Floats& v : largest) v = Floats{} + start;
  for (int64_t i = 0; i < n; ++i, scores.first += scores.apart)
    for (int g = 0; g < kVectors; ++g) {
      const Floats v = load(scores.first + kWidth * g);
      largest[g] = v > largest[g] ? v : largest[g];
    }
  float max = start;
  for (const Floats& v : largest)
    for (int l = 0; l < kWidth; ++l) max = std::max(max, v[l]);
  return max;
}

// Writes 2^(score − max); returns the sum.
template <int length, class T>
float weigh(Pieces scores, int64_t n, float max, T* weights) {
  constexpr int kVectors = length / kWidth;
  Floats sums[kVectors] = {};
  for (int64_t i = 0; i < n; ++i, scores.first += scores.apart, weights += length) {
    Floats e[kVectors];  // all of a piece before any is stored
    for (int g = 0; g < kVectors; ++g) e[g] = power_of_two<T>(load(scores.first + kWidth * g) - max);
    for (int g = 0; g < kVectors; ++g) {
      save(weights + kWidth * g, e[g]);
      sums[g] += e[g];
    }
  }
  float sum = 0;
  for (const Floats& v : sums) sum += (v[0] + v[1]) + (v[2] + v[3]);
  return sum;
}

template <int length, class T>
float step(SoftmaxState& state, Pieces scores, int64_t n, T* weights) {
  const float max = max_of<length>(state.max, scores, n);
  // With nothing to see yet any finite maximum makes zeros of −∞, and leaves NaN what it is.
  const float reference = max == -std::numeric_limits<float>::infinity() ? 0.0f : max;
  const float factor = power_of_two<float>(Floats{} + (state.max - reference))[0];
  state.sum = state.sum * factor + weigh<length>(scores, n, reference, weights);
  state.max = max;
  return factor;
}

template <int n>
void scale_and_add_all(float factor, const float* values, float* sums) {
  Floats v[n / kWidth];
  for (int i = 0; i < n / kWidth; ++i) v[i] = load(sums + kWidth * i) * factor + load(values + kWidth * i);
  for (int i = 0; i < n / kWidth; ++i) save(sums + kWidth * i, v[i]);
}

}  // namespace

void scale_and_add(int64_t n, float factor, const float* values, float* sums) {
  switch (n) {
    case 8: return scale_and_add_all<8>(factor, values, sums);
    case 12: return scale_and_add_all<12>(factor, values, sums);
    case 16: return scale_and_add_all<16>(factor, values, sums);
    case 32: return scale_and_add_all<32>(factor, values, sums);
    default: fail(ErrorCode::Internal, "sums in pieces of {}", n);
  }
}

template <class T>
float softmax_step(SoftmaxState& state, Pieces scores, int64_t n, T* weights) {
  switch (scores.length) {
    case 8: return step<8>(state, scores, n, weights);
    case 12: return step<12>(state, scores, n, weights);
    case 16: return step<16>(state, scores, n, weights);
    case 32: return step<32>(state, scores, n, weights);
    default: fail(ErrorCode::Internal, "softmax over pieces of {} scores", scores.length);
  }
}

template float softmax_step(SoftmaxState&, Pieces, int64_t, float*);
template float softmax_step(SoftmaxState&, Pieces, int64_t, bf16*);

}  // namespace flux2::gemm
