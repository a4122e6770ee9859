#include <algorithm>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

// Unfolded rows are made and multiplied this much at a time.
constexpr int64_t kColumnBytes = int64_t{256} << 20;
constexpr int64_t kRowMultiple = 128;

// w [O, kh, kw, C] → [C, kh, kw, O] with the taps in reverse: how dy reaches the input.
Tensor turned(const Tensor& w, DType dtype) {
  const Tensor t = Tensor::like(w, dtype, {w.dim(3), w.dim(1), w.dim(2), w.dim(0)});
  turn_taps(w.cast(dtype).contiguous(), t);
  return t;
}

// dy [B, H, W, O] with stride − 1 zeros between neighbours, as if the convolution had taken every step.
Tensor spread_out(const Tensor& dy, int stride) {
  if (stride == 1) return dy;
  const int64_t rows = dy.dim(1), columns = dy.dim(2);
  const Tensor wide = Tensor::like(dy, {dy.dim(0), rows, stride, columns, stride, dy.dim(3)});
  wide.fill(0.0);
  wide.narrowed(2, 0, 1).narrowed(4, 0, 1).copy_from(dy.reshaped({dy.dim(0), rows, 1, columns, 1, dy.dim(3)}));
  return wide.reshaped({dy.dim(0), rows * stride, columns * stride, dy.dim(3)});
}

}  // namespace

// The gradient of the input is itself a convolution: of dy, with the taps reversed and input and output channels exchanged.
void conv2d_grad_input(const Conv2dGradInputArgs& args) {
  if (args.dx.numel() == 0) return;
  const int kernel_rows = static_cast<int>(args.w.dim(1)), kernel_columns = static_cast<int>(args.w.dim(2));
  conv2d({spread_out(args.dy, args.conv.stride),
          turned(args.w, args.dy.dtype()),
          nullptr,
          args.dx,
          {1, kernel_rows - 1 - args.conv.pad_top, kernel_columns - 1 - args.conv.pad_left}});
}

// dw[o, tap] = Σ dy[position, o] · x[position moved by the tap]: a product with the unfolded input, some positions at a time,
// added up in F32 and in order.
void conv2d_grad_weight(const Conv2dGradWeightArgs& args) {
  const Tensor &x = args.x, &dy = args.dy, &dw = args.dw;
  if (dw.numel() == 0) return;
  if (dy.numel() == 0) return dw.fill(0.0);
  CudaStream& stream = stream_for(dw);
  const int64_t outputs = dw.dim(0), taps = dw.numel() / outputs, positions = dy.numel() / outputs;
  check(positions <= INT32_MAX, "conv2d_grad_weight: a gradient of shape {} is too large for the GPU kernel", dy.shape());
  const int64_t length = ceil_div(taps, 8) * 8;  // rows of a multiple of 16 bytes keep the product on its fast path
  const int64_t fitting = kColumnBytes / (length * info(x.dtype()).block_bytes) / kRowMultiple * kRowMultiple;
  const int64_t rows = std::min(positions, std::max(fitting, kRowMultiple));
  const Tensor columns = Tensor::like(x, {rows, length}), total = Tensor::like(x, DType::F32, {outputs, length});
  const Tensor flat = dy.reshaped({positions, outputs});
  for (int64_t first = 0; first < positions; first += rows) {
    const int64_t n = std::min(rows, positions - first);
    const Tensor part = columns.narrowed(0, 0, n);
    im2col({x, part, first, dw.dim(1), dw.dim(2), dy.dim(1), dy.dim(2), args.conv});
    stream.cublas().multiply({.a = matrix_of(flat.narrowed(0, first, n)),
                              .b = matrix_of(part),
                              .y = matrix_of(total),
                              .transpose_a = true,
                              .add = first > 0});
    stream.enqueued("conv2d_grad_weight");
  }
  dw.reshaped({outputs, taps}).copy_from(total.narrowed(1, 0, taps));
}

}  // namespace flux2::cuda
