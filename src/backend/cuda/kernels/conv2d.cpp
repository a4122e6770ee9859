#include <algorithm>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

// Unfolded rows are made and multiplied this much at a time.
constexpr int64_t kColumnBytes = int64_t{256} << 20;
constexpr int64_t kRowMultiple = 128;

// w [O, K] widened to `length` columns, the new ones zero.
Tensor padded(const Tensor& w, int64_t length) {
  if (w.dim(1) == length) return w;
  Tensor wide = Tensor::like(w, {w.dim(0), length});
  wide.fill(0.0);
  wide.narrowed(1, 0, w.dim(1)).copy_from(w);
  return wide;
}

}  // namespace

void conv2d(const Conv2dArgs& args) {
  const Tensor &x = args.x, &y = args.y;
  if (y.numel() == 0) return;
  const int64_t kernel_rows = args.w.dim(1), kernel_columns = args.w.dim(2), taps = kernel_rows * kernel_columns * x.dim(3);
  const int64_t positions = y.numel() / y.dim(3);
  check(positions <= INT32_MAX, "conv2d: an output of shape {} is too large for the GPU kernel", y.shape());
  const Tensor out = y.reshaped({positions, y.dim(3)});
  const Tensor w = args.w.cast(x.dtype()).reshaped({args.w.dim(0), taps});
  const bool pointwise = kernel_rows == 1 && kernel_columns == 1 && args.conv.stride == 1 && args.conv.pad_top == 0 &&
                         args.conv.pad_left == 0 && x.dim(1) == y.dim(1) && x.dim(2) == y.dim(2);
  if (pointwise) return linear({x.reshaped({positions, taps}), w, args.bias, out});

  // Rows of a multiple of 16 bytes keep the product on its fast path; only the first layers (3 channels) need padding.
  const int64_t length = ceil_div(taps, 8) * 8;
  const Tensor weights = padded(w, length);
  const int64_t fitting = kColumnBytes / (length * info(x.dtype()).block_bytes) / kRowMultiple * kRowMultiple;
  const int64_t rows = std::min(positions, std::max(fitting, kRowMultiple));
  const Tensor columns = Tensor::like(x, {rows, length});
  for (int64_t first = 0; first < positions; first += rows) {
    const int64_t n = std::min(rows, positions - first);
    const Tensor part = columns.narrowed(0, 0, n);
    im2col({x, part, first, kernel_rows, kernel_columns, y.dim(1), y.dim(2), args.conv});
    linear({part, weights, args.bias, out.narrowed(0, first, n)});
  }
}

}  // namespace flux2::cuda
