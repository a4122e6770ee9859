#include "backend/cpu/gemm/output.h"

#include "backend/cpu/gemm/convert.h"

namespace flux2::gemm {

void Output::store(float* sums, int64_t row, int64_t c, int64_t count) const {
  if (row_scales)
    for (int64_t i = 0; i < count; ++i) sums[i] *= row_scales[row];
  if (column_scales)
    for (int64_t i = 0; i < count; ++i) sums[i] *= column_scales[c + i];
  if (bias)
    for (int64_t i = 0; i < count; ++i) sums[i] += bias[c + i];
  const int64_t width = info(dtype).block_bytes;
  gemm::store(sums, count, dtype, static_cast<std::byte*>(data) + (row * row_stride + c) * width);
}

}  // namespace flux2::gemm
