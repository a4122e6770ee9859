#include "backend/cpu/gemm/quantised_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "backend/cpu/gemm/compiler.h"

namespace flux2::gemm {

namespace {

constexpr int64_t kPiece = 1024;  // of a row: what has to be converted to f32 goes through this much stack

// The largest |value|, or a NaN. As integers magnitudes keep their order and NaNs lie above infinity, and the maximum of
// integers is a loop the compiler turns into vector code.
FLUX2_CLONES float largest(const float* values, int64_t n, float so_far) {
  auto most = std::bit_cast<uint32_t>(so_far);
  for (int64_t i = 0; i < n; ++i) most = std::max(most, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
  return std::bit_cast<float>(most);
}

// Adding 1.5 · 2^23 leaves the nearest integer, ties to even, in the low bits.
FLUX2_CLONES void quantise(const float* values, int64_t n, float inverse, int8_t* out) {
  for (int64_t i = 0; i < n; ++i)
    out[i] = static_cast<int8_t>(std::bit_cast<uint32_t>(values[i] * inverse + 12582912.0f) & 0xffu);
}

// Calls body(values, n, offset) for pieces of a row from k on.
template <class Body>
void for_pieces(const RowSource<float>& source, int64_t row, int64_t k, int64_t n, const Body& body) {
  float held[kPiece];
  for (int64_t i = 0; i < n; i += kPiece) {
    const int64_t count = std::min(kPiece, n - i);
    const float* values;
    source.rows(row, 1, k + i, count, &values, held);
    body(values, count, i);
  }
}

}  // namespace

QuantisedRows::QuantisedRows(const Tensor& x, const Workers& workers)
    : rows_(x), scales_(std::static_pointer_cast<float>(workers.stream.allocate(static_cast<size_t>(x.dim(0)) * sizeof(float)))) {
  workers.threads.parallel_ranges(x.dim(0), 8, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      float most = 0.0f;
      for_pieces(rows_, r, 0, x.dim(1), [&](const float* values, int64_t n, int64_t) { most = largest(values, n, most); });
      // The smallest normal number keeps the inverse finite for rows of zeros and almost zeros.
      scales_.get()[r] = std::isfinite(most) ? std::max(most / 127.0f, std::numeric_limits<float>::min())
                                             : std::numeric_limits<float>::quiet_NaN();
    }
  });
}

void QuantisedRows::rows(int64_t r, int count, int64_t k, int64_t n, const int8_t** out, int8_t* scratch) const {
  for (int i = 0; i < count; ++i) {
    int8_t* to = scratch + i * n;
    const float inverse = 1.0f / scales_.get()[r + i];
    for_pieces(rows_, r + i, k, n,
               [&](const float* values, int64_t piece, int64_t at) { quantise(values, piece, inverse, to + at); });
    out[i] = to;
  }
}

}  // namespace flux2::gemm
