#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWide = 8;  // columns of one thread

// A thread scales its columns in kRows rows: it reads their factors once.
constexpr int kRows = 4;

template <class Sum, bool kAdd>
__global__ void __launch_bounds__(kThreads) scale_sums_kernel(const Sum* sums, const float* x_scales, const float* w_scales,
                                                              Bf16* y, int64_t rows, int64_t columns, int64_t y_stride) {
  const int64_t column = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWide;
  if (column >= columns) return;
  const Pack<float, 4> low = load_pack<4>(w_scales + column), high = load_pack<4>(w_scales + column + 4);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int64_t row = static_cast<int64_t>(blockIdx.y) * kRows + r;
    if (row >= rows) return;
    const float scale = x_scales[row];
    const Sum* at = sums + row * columns + column;
    const Pack<Sum, 4> first = load_pack<4>(at), second = load_pack<4>(at + 4);
    Bf16* const to = y + row * y_stride + column;
    Pack<Bf16, kWide> before{}, out;
    if constexpr (kAdd) before = load_pack<kWide>(to);
    const auto plus = [&](int v, float product) { return kAdd ? as_float(before.v[v]) + product : product; };
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      out.v[v] = from_float<Bf16>(plus(v, static_cast<float>(first.v[v]) * scale * low.v[v]));
      out.v[v + 4] = from_float<Bf16>(plus(v + 4, static_cast<float>(second.v[v]) * scale * high.v[v]));
    }
    store_pack(to, out);
  }
}

}  // namespace

void scale_sums(const ScaleSumsArgs& args) {
  CudaStream& stream = stream_for(args.y);
  const int64_t rows = args.y.dim(0), columns = args.y.dim(1);
  const dim3 grid(blocks_for("linear", columns, kThreads * kWide), blocks_for("linear", rows, kRows));
  const auto launch = [&]<class Sum, bool kAdd>() {
    scale_sums_kernel<Sum, kAdd><<<grid, kThreads, 0, stream.handle()>>>(args.sums.data<Sum>(), args.x_scales.data<float>(),
                                                                         args.w_scales.data<float>(), args.y.data<Bf16>(), rows,
                                                                         columns, rows == 1 ? columns : args.y.stride(0));
  };
  const auto run = [&]<class Sum>(Sum) {
    if (args.add) launch.template operator()<Sum, true>();
    else launch.template operator()<Sum, false>();
  };
  if (args.sums.dtype() == DType::I32) run(int32_t{});
  else run(float{});
  stream.enqueued("scaling of sums", {.bytes = traffic({&args.sums, &args.y})});
}

}  // namespace flux2::cuda
