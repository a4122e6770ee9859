#include <bit>
#include <string>

#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/layout.cuh"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void fill_kernel(const __grid_constant__ Layout<1> layout, T* y, T value) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= layout.count) return;
  int64_t offset[1];
  layout.offsets(i, offset);
  y[offset[0]] = value;
}

template <class T>
void launch(const Tensor& y, T bits) {
  CudaStream& stream = stream_for(y);
  const auto layout = layout_of<1>(y.shape(), {y.strides()});
  fill_kernel<T><<<blocks_for("fill", layout.count, kThreads), kThreads, 0, stream.handle()>>>(layout, y.data<T>(), bits);
  stream.enqueued("fill");
}

}  // namespace

std::string missing_image() {
  cudaFuncAttributes attributes{};
  const cudaError_t found = cudaFuncGetAttributes(&attributes, fill_kernel<uint32_t>);
  if (found == cudaSuccess) return {};
  cudaGetLastError();
  return cudaGetErrorString(found);
}

void fill(const FillArgs& args) {
  const Tensor& y = args.y;
  if (y.numel() == 0) return;
  switch (y.dtype()) {
    case DType::F32: return launch(y, std::bit_cast<uint32_t>(static_cast<float>(args.value)));
    case DType::F64: return launch(y, std::bit_cast<uint64_t>(args.value));
    case DType::F16: return launch(y, to_f16(static_cast<float>(args.value)).bits);
    case DType::BF16: return launch(y, to_bf16(static_cast<float>(args.value)).bits);
    case DType::I8:
    case DType::U8:
    case DType::Bool: return launch(y, static_cast<uint8_t>(static_cast<int>(args.value)));
    case DType::I32: return launch(y, static_cast<uint32_t>(static_cast<int32_t>(args.value)));
    case DType::I64: return launch(y, static_cast<uint64_t>(static_cast<int64_t>(args.value)));
    default: refuse_dtype("fill", y.dtype());
  }
}

}  // namespace flux2::cuda
