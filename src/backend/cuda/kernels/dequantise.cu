#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/quantised_blocks.cuh"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

// A warp per block of 32: reads and writes are both in order.
template <class Block, class T>
__global__ void dequantise_kernel(const Block* x, T* y, int64_t count) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= count) return;
  y[i] = from_float<T>(element(x[i / kBlockElements], static_cast<int>(i % kBlockElements)));
}

template <class Block>
void launch(const Tensor& x, const Tensor& y) {
  CudaStream& stream = stream_for(y);
  const int64_t count = y.numel();
  with_float("dequantise", y.dtype(), [&]<class T>(T) {
    dequantise_kernel<Block, T>
        <<<blocks_for("dequantise", count, kThreads), kThreads, 0, stream.handle()>>>(x.data<Block>(), y.data<T>(), count);
  });
  stream.enqueued("dequantise");
}

}  // namespace

void dequantise(const Tensor& x, const Tensor& y) {
  if (y.numel() == 0) return;
  if (x.dtype() == DType::Q8_0)
    launch<BlockQ8_0>(x, y);
  else if (x.dtype() == DType::Q4_0)
    launch<BlockQ4_0>(x, y);
  else
    refuse_dtype("dequantise", x.dtype());
}

}  // namespace flux2::cuda
