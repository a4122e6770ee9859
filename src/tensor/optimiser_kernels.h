#pragma once

#include <cstdint>
#include <span>

#include "tensor/device.h"

namespace flux2 {

// What one call of the kernel `optimise` does to all its tensors. The arithmetic of each rule is in tensor/optimiser_rules.h.
// "state" lists what OptimiserTensor::state points to; F32 with one value for each element unless it says otherwise.
enum class OptimiserRule : int {
  AdamW,             // state: m, v
  Lion,              // state: m
  Sgd,               // state: none
  SgdMomentum,       // state: buffer
  AdEmaMix,          // state: m1, v, m2
  ScheduleFree,      // state: z, v
  Interpolate,       // state: z. p ← p + mix · (z − p), rounded to nearest
  ProdigySums,       // state: m, v, s, p0. Updates m, v, s; sums: Σ g · (p0 − p), Σ |s|; p stays
  ProdigyUpdate,     // state: m, v
  AdamWDecayLast,    // AdamW with the order of operations of the 8-bit rule, for tensors that are too small for 8 bits
  AdamW8bit,         // state: codes of m and v, then their block maxima
  Lion8bit,          // state: codes of m, then its block maxima
  AdEmaMix8bit,      // state: codes of m1, v and m2, then their block maxima
  Adafactor,         // state: row means, column means (matrices) or v (vectors), m (when beta1 is used)
  Came,              // state: row means, column means or v, m, row and column means of the residuals
  SquaredGradients,  // sums: Σ g²; nothing changes
};

constexpr int64_t kCodeBlock = 256;         // elements of an 8-bit state that share a maximum
constexpr int64_t kOptimiserChunk = 16384;  // elements that one task updates; whole code blocks
constexpr int kOptimiserStates = 6;

// Numbers of a step that are the same for every tensor. They are formed in F64 and rounded once.
struct RuleNumbers {
  float gradient_scale = 1;  // every gradient is multiplied by it
  float beta1 = 0, beta2 = 0, beta3 = 0;
  float rest1 = 0, rest2 = 0, rest3 = 0;  // 1 − β (SGD: 1 − dampening), Prodigy: times powers of d
  float bias1 = 1, root_bias2 = 1;        // 1 − β₁ᵏ, √(1 − β₂ᵏ)
  float eps = 0, eps2 = 0;
  float alpha = 0;    // AdEMAMix
  float clip = 1;     // Adafactor, CAME
  float s_rate = 0;   // Prodigy: what a gradient counts in s
  int64_t slice = 1;  // Prodigy: every slice-th element takes part in the sums
  bool nesterov = false, momentum = false, scale_parameter = false;
};

// One tensor of a call. Memory of the device; everything contiguous.
struct OptimiserTensor {
  void* p = nullptr;
  const void* g = nullptr;
  void* state[kOptimiserStates] = {};
  int64_t count = 0;
  int64_t rows = 1,
          columns = 0;  // of the matrices that Adafactor and CAME factor: the last two axes; count / (rows · columns) of them
  bool factored = false;
  bool p_is_bf16 = false, g_is_bf16 = false;
  uint32_t index = 0;  // which random numbers round a BF16 parameter
  // Numbers that depend on the parameter group. Weight decay has three forms, and a rule uses the one that its original uses,
  // since they round differently: p · keep, p − fade · p, or g + decay · p.
  float rate = 0;  // step size
  float keep = 1, fade = 0, decay = 0;
  float mix = 0, z_rate = 0;  // schedule-free: the weight of z in y, and the step size of z
};

struct OptimiseArgs {
  OptimiserRule rule = OptimiserRule::AdamW;
  RuleNumbers numbers;
  std::span<const OptimiserTensor> tensors;
  Stream& stream;
  const float* signed_codes = nullptr;  // the two code books, 256 values each, on the device
  const float* unsigned_codes = nullptr;
  double* sums = nullptr;  // two values on the device, for the rules that have sums
  uint64_t seed = 0;       // of stochastic rounding, with the number of the step
  uint64_t step = 0;
};

}  // namespace flux2
