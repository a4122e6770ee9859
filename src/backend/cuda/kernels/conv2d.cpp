#include <algorithm>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

// Unfolded rows are made and multiplied this much at a time.
constexpr int64_t kColumnBytes = int64_t{256} << 20;
constexpr int64_t kRowMultiple = 128;
// The library's kernels move 16 bytes of channels at a time.
constexpr int64_t kChannelMultiple = 8;
// An unfolded row this short is cheaper to write and multiply than a padded picture: a first layer of 3 channels took 0.55 ms
// at 1024² through the library.
constexpr int64_t kShortRow = 64;

int64_t round_up(int64_t n, int64_t multiple) { return ceil_div(n, multiple) * multiple; }

// t widened along an axis, the new places zero.
Tensor padded(const Tensor& t, int axis, int64_t length) {
  if (t.dim(axis) == length) return t;
  Tensor wide = Tensor::like(t, t.shape().with(axis, length));
  wide.fill(0.0);
  wide.narrowed(axis, 0, t.dim(axis)).copy_from(t);
  return wide;
}

bool is_pointwise(const Conv2dArgs& args) {
  return args.w.dim(1) == 1 && args.w.dim(2) == 1 && args.conv.stride == 1 && args.conv.pad_top == 0 && args.conv.pad_left == 0 &&
         args.x.dim(1) == args.y.dim(1) && args.x.dim(2) == args.y.dim(2);
}

// Through cuDNN; false when it has no way. Only the last layer (3 channels) is padded. The residual, if any, is added to y.
bool by_library(const Conv2dArgs& args, const Tensor* residual) {
  if (args.x.dtype() != DType::BF16 || args.w.numel() / args.w.dim(0) <= kShortRow) return false;
  CudaStream& stream = stream_for(args.y);
  const int64_t in = round_up(args.x.dim(3), kChannelMultiple), out = round_up(args.y.dim(3), kChannelMultiple);
  const Tensor w = padded(padded(args.w.cast(DType::BF16).contiguous(), 3, in), 0, out);
  const Tensor y = out == args.y.dim(3) ? args.y : Tensor::like(args.y, args.y.shape().with(3, out));
  Tensor bias;
  if (args.bias) {
    bias = padded(args.bias->cast(DType::BF16).contiguous(), 0, out);
    if (!is_aligned(bias.raw(), 16)) bias = bias.cloned();
  }
  if (!stream.cudnn().convolution({padded(args.x, 3, in), w, args.bias ? &bias : nullptr, y, args.conv}, residual)) return false;
  stream.enqueued("conv2d");
  if (out != args.y.dim(3)) args.y.copy_from(y.narrowed(3, 0, args.y.dim(3)));
  return true;
}

// As products of unfolded rows: any dtype and shape.
void by_unfolding(const Conv2dArgs& args) {
  const Tensor &x = args.x, &y = args.y;
  const int64_t kernel_rows = args.w.dim(1), kernel_columns = args.w.dim(2), taps = kernel_rows * kernel_columns * x.dim(3);
  const int64_t positions = y.numel() / y.dim(3);
  check(positions <= INT32_MAX, "conv2d: an output of shape {} is too large for the GPU kernel", y.shape());
  const Tensor out = y.reshaped({positions, y.dim(3)});
  // Rows of a multiple of 16 bytes keep the product on its fast path.
  const int64_t length = round_up(taps, 8);
  const Tensor weights = padded(args.w.cast(x.dtype()).reshaped({args.w.dim(0), taps}), 1, length);
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

}  // namespace

void conv2d(const Conv2dArgs& args) {
  const Tensor &x = args.x, &y = args.y;
  if (y.numel() == 0) return;
  if (is_pointwise(args)) {
    const int64_t positions = y.numel() / y.dim(3);
    return linear(
        {x.reshaped({positions, x.dim(3)}), args.w.reshaped({y.dim(3), x.dim(3)}), args.bias, y.reshaped({positions, y.dim(3)})});
  }
  if (!by_library(args, nullptr)) by_unfolding(args);
}

void conv2d_add(const Conv2dAddArgs& args) {
  const Conv2dArgs plain{args.x, args.w, args.bias, args.y, args.conv};
  if (args.y.dim(3) % kChannelMultiple == 0 && !is_pointwise(plain) && by_library(plain, &args.residual)) return;
  conv2d(plain);
  binary({Binary::Add, args.y, args.residual, args.y});
}

// Each of the four output pixels that come from one input pixel sees a 2×2 neighbourhood of the small picture, under taps
// that are sums of the nine: 4/9 of the multiplies, and the large picture is never read. cuDNN cannot write every second
// pixel (it would copy, 20 times slower), so the four pictures are made apart.
void upsample_conv2d(const UpsampleConv2dArgs& args) {
  const Tensor &x = args.x, &w = args.w;
  if (args.y.numel() == 0) return;
  const int64_t channels = w.dim(0);
  const Tensor taps = Tensor::like(x, {4, channels, 2, 2, w.dim(3)});
  sum_taps(w.cast(x.dtype()).contiguous(), taps);
  const Tensor phases = Tensor::like(x, {4, x.dim(0), x.dim(1), x.dim(2), channels});
  for (int row = 0; row < 2; ++row)
    for (int column = 0; column < 2; ++column) {
      const int phase = 2 * row + column;
      conv2d({x,
              taps.narrowed(0, phase, 1).reshaped({channels, 2, 2, w.dim(3)}),
              args.bias,
              phases.narrowed(0, phase, 1).reshaped(x.shape().with(3, channels)),
              {1, 1 - row, 1 - column}});
    }
  interleave(phases, args.y);
}

}  // namespace flux2::cuda
