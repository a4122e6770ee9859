#include "backend/cpu/gemm/direct.h"

#include <algorithm>

#include "backend/cpu/gemm/compiler.h"
#include "backend/cpu/gemm/convert.h"

namespace flux2::gemm {

namespace {

constexpr int kLanes = 16;         // independent sums, so that the loop becomes vector code
constexpr int64_t kSegment = 512;  // of a row, converted at a time

FLUX2_CLONES float dot(const float* a, const float* b, int64_t n) {
  float sum[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) sum[l] += a[i + l] * b[i + l];
  for (int l = 0; i + l < n; ++l) sum[l] += a[i + l] * b[i + l];
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) sum[l] += sum[l + width];
  return sum[0];
}

}  // namespace

void multiply_direct(const Tensor& x, const Tensor& w, const Output& output, const Workers& workers) {
  const int64_t m = x.dim(0), n = w.dim(0), k = x.dim(1);
  if (m == 0 || n == 0) return;
  const auto memory = workers.stream.allocate(static_cast<size_t>(std::max<int64_t>(1, m * k)) * sizeof(float));
  auto* rows = static_cast<float*>(memory.get());
  for (int64_t i = 0; i < m; ++i)
    convert(x.dtype(), x.data<std::byte>() + bytes_for(x.dtype(), i * x.stride(0)), 0, k, rows + i * k);

  const MatrixRows<float> weights(w);
  workers.threads.parallel_ranges(n, 16, [&](int64_t begin, int64_t end) {
    float segment[kSegment];
    for (int64_t j = begin; j < end; ++j) {
      float sum[kMaxDirectRows] = {};
      for (int64_t k0 = 0; k0 < k; k0 += kSegment) {
        const int64_t length = std::min(kSegment, k - k0);
        const float* weight;
        weights.rows(j, 1, k0, length, &weight, segment);
        for (int64_t i = 0; i < m; ++i) sum[i] += dot(rows + i * k + k0, weight, length);
      }
      for (int64_t i = 0; i < m; ++i) output.store({&sum[i], 1, 1}, i, j, 1);
    }
  });
}

}  // namespace flux2::gemm
