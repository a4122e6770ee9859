#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::cpu {

namespace {

// The geometry of one convolution: input [B, H, W, C], weight [O, kh, kw, C], output [B, H', W', O].
struct Geometry {
  int64_t height, width, channels, out_height, out_width, outputs, kernel_height, kernel_width;
  ConvShape conv;

  Geometry(const Tensor& x, const Tensor& w, const Tensor& y, const ConvShape& shape)
      : height(x.dim(1)),
        width(x.dim(2)),
        channels(x.dim(3)),
        out_height(y.dim(1)),
        out_width(y.dim(2)),
        outputs(y.dim(3)),
        kernel_height(w.dim(1)),
        kernel_width(w.dim(2)),
        conv(shape) {}

  int64_t taps() const { return kernel_height * kernel_width; }

  // The element where the input pixel that output pixel p reads through a tap starts, or -1 outside the picture.
  int64_t input_at(int64_t p, int64_t tap) const {
    const int64_t b = p / out_width / out_height, i = p / out_width % out_height, j = p % out_width;
    const int64_t row = i * conv.stride - conv.pad_top + tap / kernel_width;
    const int64_t column = j * conv.stride - conv.pad_left + tap % kernel_width;
    if (row < 0 || row >= height || column < 0 || column >= width) return -1;
    return ((b * height + row) * width + column) * channels;
  }

  // The element where the output pixel that reads input pixel p through a tap starts, or -1.
  int64_t output_at(int64_t p, int64_t tap) const {
    const int64_t b = p / width / height, row = p / width % height, column = p % width;
    const int64_t i = row + conv.pad_top - tap / kernel_width, j = column + conv.pad_left - tap % kernel_width;
    if (i < 0 || j < 0 || i % conv.stride != 0 || j % conv.stride != 0) return -1;
    if (i / conv.stride >= out_height || j / conv.stride >= out_width) return -1;
    return ((b * out_height + i / conv.stride) * out_width + j / conv.stride) * outputs;
  }
};

}  // namespace

void conv2d(const Conv2dArgs& a) {
  const Geometry g(a.x, a.w, a.y, a.conv);
  with_compute_type(a.y.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.y).cpu().row_math<C>();
    const std::vector<C> w = values_of<C>(a.w);
    const std::vector<C> bias = a.bias ? values_of<C>(*a.bias) : std::vector<C>(static_cast<size_t>(g.outputs));
    const int64_t pixels = a.y.dim(0) * g.out_height * g.out_width;
    parallel_rows(cpu_stream(a.y), pixels, g.outputs * g.taps() * g.channels, [&](int64_t begin, int64_t end) {
      Reader<C> xs(a.x);
      Writer<C> ys(a.y);
      for (int64_t p = begin; p < end; ++p) {
        C* y = ys.begin(p * g.outputs, g.outputs);
        std::copy(bias.begin(), bias.end(), y);
        for (int64_t tap = 0; tap < g.taps(); ++tap) {
          const int64_t at = g.input_at(p, tap);
          if (at < 0) continue;
          const C* x = xs(at, g.channels);
          for (int64_t o = 0; o < g.outputs; ++o) y[o] += math.dot(x, w.data() + (o * g.taps() + tap) * g.channels, g.channels);
        }
        ys.end();
      }
    });
  });
}

void conv2d_grad_input(const Conv2dGradInputArgs& a) {
  const Geometry g(a.dx, a.w, a.dy, a.conv);
  with_compute_type(a.dx.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.dx).cpu().row_math<C>();
    const std::vector<C> w = values_of<C>(a.w);
    const int64_t pixels = a.dx.dim(0) * g.height * g.width;
    parallel_rows(cpu_stream(a.dx), pixels, g.outputs * g.taps() * g.channels, [&](int64_t begin, int64_t end) {
      Reader<C> dys(a.dy);
      Writer<C> dxs(a.dx);
      for (int64_t p = begin; p < end; ++p) {
        C* dx = dxs.begin(p * g.channels, g.channels);
        std::fill_n(dx, g.channels, C(0));
        for (int64_t tap = 0; tap < g.taps(); ++tap) {
          const int64_t at = g.output_at(p, tap);
          if (at < 0) continue;
          const C* dy = dys(at, g.outputs);
          for (int64_t o = 0; o < g.outputs; ++o) math.axpy(dy[o], w.data() + (o * g.taps() + tap) * g.channels, dx, g.channels);
        }
        dxs.end();
      }
    });
  });
}

// One task per output channel and tap: its sum over all pixels has one order.
void conv2d_grad_weight(const Conv2dGradWeightArgs& a) {
  const Geometry g(a.x, a.dw, a.dy, a.conv);
  const int64_t pixels = a.dy.dim(0) * g.out_height * g.out_width;
  with_compute_type(a.dy.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.dw).cpu().row_math<C>();
    parallel_rows(cpu_stream(a.dw), g.outputs * g.taps(), pixels * g.channels, [&](int64_t begin, int64_t end) {
      Reader<C> xs(a.x), dys(a.dy);
      std::vector<C> total(static_cast<size_t>(g.channels));
      for (int64_t task = begin; task < end; ++task) {
        const int64_t o = task / g.taps(), tap = task % g.taps();
        std::fill(total.begin(), total.end(), C(0));
        for (int64_t p = 0; p < pixels; ++p) {
          const int64_t at = g.input_at(p, tap);
          if (at >= 0) math.axpy(*dys(p * g.outputs + o, 1), xs(at, g.channels), total.data(), g.channels);
        }
        store(a.dw.dtype(), total.data(), element(a.dw, task * g.channels), 1, g.channels);
      }
    });
  });
}

}  // namespace flux2::cpu
