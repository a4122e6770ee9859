#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/stored_values.cuh"

// Stored weights as the product takes them, each value rounded once.
namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWide = 8;  // elements of one thread

template <int V, class Source, class T>
__global__ void dequantise_kernel(const Source source, T* y, int64_t count) {
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  if (i >= count) return;
  float values[V];
  source.template load<V>(i, values);
  Pack<T, V> out;
#pragma unroll
  for (int v = 0; v < V; ++v) out.v[v] = from_float<T>(values[v]);
  store_pack(y + i, out);
}

template <class Source>
void launch(const Source& source, const Tensor& x, const Tensor& y, bool wide) {
  CudaStream& stream = stream_for(y);
  const int64_t count = y.numel();
  with_float("dequantise", y.dtype(), [&]<class T>(T) {
    if (wide && is_aligned(y.raw(), sizeof(T) * kWide))
      dequantise_kernel<kWide>
          <<<blocks_for("dequantise", count, kThreads * kWide), kThreads, 0, stream.handle()>>>(source, y.data<T>(), count);
    else
      dequantise_kernel<1>
          <<<blocks_for("dequantise", count, kThreads), kThreads, 0, stream.handle()>>>(source, y.data<T>(), count);
  });
  stream.enqueued("dequantise", {.bytes = traffic({&x, &y})});
}

template <class S>
void launch_bytes(const Tensor& x, const Tensor& y) {
  const Tensor& scales = x.scales();
  const int64_t row = scales.defined() && scales.numel() > 1 ? x.dim(-1) : x.numel();
  launch(Bytes<S>{x.data<S>(), scales.defined() ? scales.data<float>() : nullptr, row}, x, y,
         row % kWide == 0 && is_aligned(x.raw(), kWide));
}

}  // namespace

void dequantise(const Tensor& x, const Tensor& y) {
  if (y.numel() == 0) return;
  switch (x.dtype()) {
    case DType::I8: return launch_bytes<int8_t>(x, y);
    case DType::F8_E4M3: return launch_bytes<__nv_fp8_e4m3>(x, y);
    case DType::F8_E5M2: return launch_bytes<__nv_fp8_e5m2>(x, y);
    default: with_blocks("dequantise", x.dtype(), [&]<class B>(B) { launch(Stored<B>{x.data<uint8_t>()}, x, y, true); });
  }
}

}  // namespace flux2::cuda
