#include "backend/cpu/gemm/kernel_scalar.h"

// 4 × 8: eight accumulators of four floats, which any machine's sixteen vector registers hold.

namespace flux2::gemm::scalar_f32 {

namespace {

constexpr int kMr = 4, kNr = 8;

// panel[k][row]
template <int rows>
void pack(int64_t k, const float* const* row, float* panel) {
  for (int64_t i = 0; i < k; ++i, panel += rows)
    for (int r = 0; r < rows; ++r) panel[r] = row[r][i];
}

void run(int64_t k, const float* a, const float* b, float* tile, Pass pass) {
  float sum[kMr][kNr];
  for (int i = 0; i < kMr; ++i)
    for (int j = 0; j < kNr; ++j) sum[i][j] = pass.first ? 0.0f : tile[i * kNr + j];
  for (int64_t s = 0; s < k; ++s, a += kMr, b += kNr)
    for (int i = 0; i < kMr; ++i)
      for (int j = 0; j < kNr; ++j) sum[i][j] += a[i] * b[j];
  for (int i = 0; i < kMr; ++i)
    for (int j = 0; j < kNr; ++j) tile[i * kNr + j] = sum[i][j];
}

}  // namespace

const MicroKernel<float> kKernel = {"scalar f32 4x8", kMr, kNr, 1, pack<kMr>, pack<kNr>, run};

}  // namespace flux2::gemm::scalar_f32
