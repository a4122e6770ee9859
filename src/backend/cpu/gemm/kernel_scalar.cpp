#include "backend/cpu/gemm/micro_kernel.h"

// 4 × 8: eight accumulators of four floats, which any machine's sixteen vector registers hold.

namespace flux2::gemm::scalar_f32 {

namespace {

constexpr int kMr = 4, kNr = 8;

// panel[k][row]
template <int rows>
void pack(int64_t k, const float* const* row, void* to) {
  auto* panel = static_cast<float*>(to);
  for (int64_t i = 0; i < k; ++i, panel += rows)
    for (int r = 0; r < rows; ++r) panel[r] = row[r][i];
}

void run(int64_t k, const void* panel_a, const void* panel_b, float* tile, Pass pass) {
  const auto *a = static_cast<const float*>(panel_a), *b = static_cast<const float*>(panel_b);
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

const MicroKernel<float> kKernel = {
    {.name = "scalar f32 4x8", .mr = kMr, .nr = kNr, .kr = 1, .a_step = 4 * kMr, .b_step = 4 * kNr, .run = run},
    pack<kMr>,
    pack<kNr>};

}  // namespace flux2::gemm::scalar_f32
