#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "tensor/optimiser_kernels.h"

// The arithmetic of the optimisers, compiled for the CPU and for the GPU, so that the two cannot differ. The files that include
// this are compiled without contraction of multiply-adds: every operation rounds where it is written.
#if defined(__CUDACC__)
#define FLUX2_HOST_DEVICE __host__ __device__
#else
#define FLUX2_HOST_DEVICE
#endif

namespace flux2 {

// One element while it is updated: parameter, gradient (already scaled) and up to three state values.
struct OptimiserElement {
  float p = 0, g = 0;
  float a = 0, b = 0, c = 0;
};

// How many states an element-wise rule has, and which of them are stored with the signed code book in the 8-bit form.
constexpr int state_count(OptimiserRule rule) {
  switch (rule) {
    case OptimiserRule::Sgd: return 0;
    case OptimiserRule::Lion:
    case OptimiserRule::Lion8bit:
    case OptimiserRule::SgdMomentum:
    case OptimiserRule::Interpolate: return 1;
    case OptimiserRule::AdEmaMix:
    case OptimiserRule::AdEmaMix8bit: return 3;
    default: return 2;
  }
}
constexpr bool has_signed_codes(int state) { return state != 1; }

FLUX2_HOST_DEVICE inline float sign_of(float v) { return static_cast<float>(v > 0) - static_cast<float>(v < 0); }

template <OptimiserRule kRule>
FLUX2_HOST_DEVICE inline void update_element(const RuleNumbers& k, const OptimiserTensor& t, OptimiserElement& e) {
  using R = OptimiserRule;
  if constexpr (kRule == R::AdamW) {
    e.a = k.beta1 * e.a + k.rest1 * e.g;
    e.b = k.beta2 * e.b + k.rest2 * e.g * e.g;
    e.p = e.p * t.keep - t.rate * (e.a / (std::sqrt(e.b) / k.root_bias2 + k.eps));
  } else if constexpr (kRule == R::AdamWDecayLast || kRule == R::AdamW8bit) {  // k.eps contains √(1 − β₂ᵏ)
    e.a = k.beta1 * e.a + k.rest1 * e.g;
    e.b = k.beta2 * e.b + k.rest2 * e.g * e.g;
    e.p = (e.p - t.rate * (e.a / (std::sqrt(e.b) + k.eps))) * t.keep;
  } else if constexpr (kRule == R::Lion || kRule == R::Lion8bit) {
    e.p = e.p * t.keep - t.rate * sign_of(k.beta1 * e.a + k.rest1 * e.g);
    e.a = k.beta2 * e.a + k.rest2 * e.g;
  } else if constexpr (kRule == R::Sgd) {
    e.p -= t.rate * (e.g + t.decay * e.p);
  } else if constexpr (kRule == R::SgdMomentum) {
    const float g = e.g + t.decay * e.p;
    e.a = k.beta1 * e.a + k.rest1 * g;
    e.p -= t.rate * (k.nesterov ? g + k.beta1 * e.a : e.a);
  } else if constexpr (kRule == R::AdEmaMix || kRule == R::AdEmaMix8bit) {
    e.a = k.beta1 * e.a + k.rest1 * e.g;
    e.b = k.beta2 * e.b + k.rest2 * e.g * e.g;
    e.c = k.beta3 * e.c + k.rest3 * e.g;
    const float direction = (e.a / k.bias1 + k.alpha * e.c) / (std::sqrt(e.b) / k.root_bias2 + k.eps);
    e.p = e.p * t.keep - (t.fade * e.p + t.rate * direction);
  } else if constexpr (kRule == R::ScheduleFree) {  // a is z
    e.b = k.beta2 * e.b + k.rest2 * e.g * e.g;
    const float direction = e.g / (std::sqrt(e.b) / k.root_bias2 + k.eps) + t.decay * e.p;
    e.p = e.p + t.mix * (e.a - e.p) + t.rate * direction;
    e.a -= t.z_rate * direction;
  } else if constexpr (kRule == R::Interpolate) {
    e.p += t.mix * (e.a - e.p);
  } else if constexpr (kRule == R::ProdigyUpdate) {
    e.p = e.p - t.fade * e.p - t.rate * (e.a / (std::sqrt(e.b) + k.eps));
  } else {
    static_assert(kRule == R::AdamW, "this rule does not work element by element");
  }
}

// Prodigy's first pass. `gradient` of coupled weight decay includes decay · p.
FLUX2_HOST_DEVICE inline void prodigy_moments(const RuleNumbers& k, const OptimiserTensor& t, OptimiserElement& e) {
  e.g += t.decay * e.p;
  e.a = k.beta1 * e.a + k.rest1 * e.g;
  e.b = k.beta2 * e.b + k.rest2 * e.g * e.g;
}
FLUX2_HOST_DEVICE inline float prodigy_s(const RuleNumbers& k, float s, float g) { return k.beta3 * s + k.s_rate * g; }

// The factored second moment of Adafactor and CAME.
FLUX2_HOST_DEVICE inline float averaged(float old, float beta, float rest, float fresh) { return beta * old + rest * fresh; }
FLUX2_HOST_DEVICE inline float inverse_root(float v) { return 1.0f / std::sqrt(v); }
FLUX2_HOST_DEVICE inline float row_factor(float row, float mean) { return inverse_root(row / mean); }
FLUX2_HOST_DEVICE inline float clip_factor(const RuleNumbers& k, double squares, double count) {
  const float excess = static_cast<float>(std::sqrt(squares / count)) / k.clip;
  return excess > 1.0f ? 1.0f / excess : 1.0f;
}
FLUX2_HOST_DEVICE inline float adafactor_rate(const RuleNumbers& k, const OptimiserTensor& t, double p_squares) {
  if (!k.scale_parameter) return t.rate;
  const float rms = static_cast<float>(std::sqrt(p_squares / static_cast<double>(t.count)));
  return t.rate * (rms > k.eps2 ? rms : k.eps2);
}
// `update` is clipped, e.a the momentum.
FLUX2_HOST_DEVICE inline void adafactor_update(const RuleNumbers& k, const OptimiserTensor& t, float rate, float update,
                                               OptimiserElement& e) {
  update *= rate;
  if (k.momentum) update = e.a = k.beta1 * e.a + k.rest1 * update;
  e.p = e.p - t.decay * rate * e.p - update;
}
FLUX2_HOST_DEVICE inline float came_moment(const RuleNumbers& k, float m, float update) { return k.beta1 * m + k.rest1 * update; }
FLUX2_HOST_DEVICE inline float came_residual(const RuleNumbers& k, float m, float update) {
  return (update - m) * (update - m) + k.eps2;
}

FLUX2_HOST_DEVICE inline float came_update(const OptimiserTensor& t, float p, float direction) {
  return p - t.fade * p - t.rate * direction;
}

// The search for v in an ascending book of 256 values, eight steps with half = 128, 64, … 1 from low = 0: `low` ends as the last
// entry below v. Without branches, which no processor could predict.
FLUX2_HOST_DEVICE inline int search_step(const float* book, float v, int low, int half) {
  return low + static_cast<int>(book[low + half] < v) * half;
}
// The entry nearest to v, where `low` is the last entry below it; of two equally near ones the lower.
FLUX2_HOST_DEVICE inline int nearest_of_two(const float* book, float v, int low) {
  const int high = low < 255 ? low + 1 : 255;
  return v > (book[low] + book[high]) * 0.5f ? high : low;
}
FLUX2_HOST_DEVICE inline int nearest_code(const float* book, float v) {
  int low = 0;
  for (int half = 128; half > 0; half /= 2) low = search_step(book, v, low, half);
  return nearest_of_two(book, v, low);
}

// A signed value keeps its sign: next to zero the entry on its own side is taken.
FLUX2_HOST_DEVICE inline uint8_t code_with_sign(const float* book, float s, int code) {
  if (std::signbit(book[code]) != std::signbit(s)) code += s > 0 ? 1 : -1;
  return static_cast<uint8_t>(code);
}

// The code that stores s in a block whose largest magnitude is `largest`.
FLUX2_HOST_DEVICE inline uint8_t code_of(const float* book, bool is_signed, float s, float largest) {
  if (largest == 0.0f) return is_signed ? 127 : 0;
  const int code = nearest_code(book, s / largest);
  return is_signed ? code_with_sign(book, s, code) : static_cast<uint8_t>(code);
}

struct RandomWords {
  uint32_t word[4];
};
// Philox4x32-10, as base/rng.h, for the counter of CountedRandom(seed, 11 + 256 · tensor, step).
FLUX2_HOST_DEVICE inline RandomWords rounding_words(uint64_t seed, uint32_t tensor, uint64_t step, uint32_t block) {
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  uint32_t c0 = block, c1 = 11u + 256u * tensor, c2 = static_cast<uint32_t>(step), c3 = static_cast<uint32_t>(step >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
    c1 = static_cast<uint32_t>(p1);
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c3 = static_cast<uint32_t>(p0);
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return {{c0, c1, c2, c3}};
}

// The bits of v in BF16, rounded up with a probability equal to the part that is cut off: a uniform 16-bit number, the upper half
// of a random word, is added below the last bit that stays.
FLUX2_HOST_DEVICE inline uint16_t stochastic_bf16(float v, uint32_t word) {
  uint32_t bits;
  std::memcpy(&bits, &v, sizeof bits);
  if ((bits & 0x7f800000u) == 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | ((bits & 0xffffu) != 0 ? 0x40u : 0u));
  return static_cast<uint16_t>((bits + (word >> 16)) >> 16);
}

}  // namespace flux2
