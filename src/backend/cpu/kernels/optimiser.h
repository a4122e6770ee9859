#pragma once

#include <algorithm>
#include <vector>

#include "backend/cpu/cpu_stream.h"
#include "tensor/optimiser_rules.h"

// What the two files of the optimiser share: pieces of parameters and gradients as floats, and work split without regard to the
// number of threads, so that it does not change a bit.
namespace flux2::cpu {

constexpr int64_t kOptimiserPiece = kCodeBlock;  // elements that are converted at a time

// `n` scaled gradients.
inline void load_gradients(const OptimiserTensor& t, float scale, int64_t first, int64_t n, float* out) {
  if (t.g_is_bf16) {
    const bf16* g = static_cast<const bf16*>(t.g) + first;
    for (int64_t i = 0; i < n; ++i) out[i] = to_float(g[i]) * scale;
  } else {
    const float* g = static_cast<const float*>(t.g) + first;
    for (int64_t i = 0; i < n; ++i) out[i] = g[i] * scale;
  }
}

inline void load_parameters(const OptimiserTensor& t, int64_t first, int64_t n, float* out) {
  if (t.p_is_bf16) {
    const bf16* p = static_cast<const bf16*>(t.p) + first;
    for (int64_t i = 0; i < n; ++i) out[i] = to_float(p[i]);
  } else {
    std::copy_n(static_cast<const float*>(t.p) + first, n, out);
  }
}

// BF16 parameters are rounded stochastically.
void store_parameters(const OptimiseArgs& a, const OptimiserTensor& t, int64_t first, int64_t n, const float* values);

// Calls body(tensor, part) for part = 0 … parts(tensor) − 1 of every tensor, on any thread.
template <class Parts, class Body>
void for_parts(const OptimiseArgs& a, Parts&& parts, Body&& body) {
  std::vector<int64_t> first(a.tensors.size() + 1, 0);
  for (size_t i = 0; i < a.tensors.size(); ++i) first[i + 1] = first[i] + parts(i);
  static_cast<CpuStream&>(a.stream).pool().parallel_for(first.back(), [&](int64_t task) {
    const auto after = std::upper_bound(first.begin(), first.end(), task);
    const auto tensor = static_cast<size_t>(after - first.begin() - 1);
    body(tensor, task - first[tensor]);
  });
}

void optimise_factored(const OptimiseArgs& a);  // Adafactor and CAME

}  // namespace flux2::cpu
