#include "backend/cpu/gemm/direct.h"

#include <algorithm>
#include <bit>

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

// The same for weights that are widened on the way, without a copy of them in f32.
FLUX2_CLONES float dot(const float* a, const bf16* b, int64_t n) {
  float sum[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) sum[l] += a[i + l] * std::bit_cast<float>(static_cast<uint32_t>(b[i + l].bits) << 16);
  for (int l = 0; i + l < n; ++l) sum[l] += a[i + l] * std::bit_cast<float>(static_cast<uint32_t>(b[i + l].bits) << 16);
  for (int width = kLanes / 2; width > 0; width /= 2)
    for (int l = 0; l < width; ++l) sum[l] += sum[l + width];
  return sum[0];
}

// Calls sum_of(row of x, row of w) for each sum of the product and stores what it returns, some columns at a time.
template <class Sum>
void store_sums(int64_t m, int64_t n, const Output& output, const Workers& workers, const Sum& sum_of) {
  constexpr int64_t kColumns = 64, kPiece = 16;  // a piece may have as many as a tile
  static_assert(kPiece <= kMaxTileRows);
  workers.threads.parallel_ranges(n, 16, [&](int64_t begin, int64_t end) {
    float sums[kMaxDirectRows][kColumns];
    for (int64_t first = begin; first < end; first += kColumns) {
      const int64_t count = std::min(kColumns, end - first);
      for (int64_t j = 0; j < count; ++j)
        for (int64_t i = 0; i < m; ++i) sums[i][j] = sum_of(i, first + j);
      for (int64_t i = 0; i < m; ++i) output.store({sums[i], kPiece, kPiece}, i, first, count);
    }
  });
}

void multiply_as_integers(const float* rows, int64_t m, const Tensor& w, const Output& output, const Workers& workers,
                          RowDot dot_of) {
  const int64_t k = w.dim(1), blocks = (k + kDotBlock - 1) / kDotBlock;
  const auto values = workers.stream.allocate(static_cast<size_t>(m * blocks * kDotBlock));
  const auto factors = workers.stream.allocate(static_cast<size_t>(2 * m * blocks) * sizeof(float));
  auto* integers = static_cast<int8_t*>(values.get());
  auto* scales = static_cast<float*>(factors.get());
  DotRow x[kMaxDirectRows];
  for (int64_t i = 0; i < m; ++i) {
    int8_t* to = integers + i * blocks * kDotBlock;
    float* of = scales + 2 * i * blocks;
    quantise_for_dots(rows + i * k, k, to, of, of + blocks);
    x[i] = {to, of, of + blocks};
  }
  const auto* data = w.data<std::byte>();
  const int64_t row_bytes = bytes_for(w.dtype(), w.dim(0) > 1 ? w.stride(0) : 0);
  store_sums(m, w.dim(0), output, workers, [&](int64_t i, int64_t j) { return dot_of(data + j * row_bytes, x[i], k); });
}

}  // namespace

void multiply_direct(const Tensor& x, const Tensor& w, const Output& output, const Workers& workers, const RowDots* dots) {
  const int64_t m = x.dim(0), n = w.dim(0), k = x.dim(1);
  if (m == 0 || n == 0) return;
  const auto memory = workers.stream.allocate(static_cast<size_t>(std::max<int64_t>(1, m * k)) * sizeof(float));
  auto* rows = static_cast<float*>(memory.get());
  for (int64_t i = 0; i < m; ++i)
    convert(x.dtype(), x.data<std::byte>() + bytes_for(x.dtype(), i * x.stride(0)), 0, k, rows + i * k);

  if (const RowDot dot_of = dots ? dots->of_integers(w.dtype()) : nullptr)
    return multiply_as_integers(rows, m, w, output, workers, dot_of);
  if (w.dtype() == DType::BF16) {
    const int64_t stride = w.dim(0) > 1 ? w.stride(0) : 0;
    return store_sums(m, n, output, workers,
                      [&](int64_t i, int64_t j) { return dot(rows + i * k, w.data<bf16>() + j * stride, k); });
  }
  if (const RowFloatDot dot_of = dots ? dots->of_floats(w.dtype()) : nullptr) {
    const int64_t row_bytes = bytes_for(w.dtype(), w.dim(0) > 1 ? w.stride(0) : 0);
    return store_sums(m, n, output, workers,
                      [&](int64_t i, int64_t j) { return dot_of(w.data<std::byte>() + j * row_bytes, rows + i * k, k); });
  }
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
