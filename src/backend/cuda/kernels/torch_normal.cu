#include <curand_kernel.h>

#include <algorithm>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/launch.h"

// The numbers are those of PyTorch to the last bit because sine, cosine and logarithm are the same instructions; the host's
// are exact and therefore others.
namespace flux2::cuda {

namespace {

constexpr int kThreads = 256, kAtOnce = 4;  // as PyTorch starts it

// Every thread is a sequence of its own; its draws of four go to places a whole grid apart.
__global__ void __launch_bounds__(kThreads) torch_normal_kernel(float* y, int64_t count, unsigned long long seed) {
  const int64_t thread = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x,
                grid = static_cast<int64_t>(gridDim.x) * kThreads;
  curandStatePhilox4_32_10_t state;
  curand_init(seed, static_cast<unsigned long long>(thread), 0, &state);
  for (int64_t first = thread; first < count; first += grid * kAtOnce) {
    const float4 drawn = curand_normal4(&state);
    const float values[kAtOnce] = {drawn.x, drawn.y, drawn.z, drawn.w};
    for (int i = 0; i < kAtOnce; ++i)
      if (first + i * grid < count) y[first + i * grid] = values[i];
  }
}

}  // namespace

void torch_normal(const TorchNormalArgs& args) {
  const int64_t count = args.y.numel();
  if (count == 0) return;
  CudaStream& stream = stream_for(args.y);
  const int64_t resident = static_cast<int64_t>(args.gpu.multiprocessors) * (args.gpu.threads_per_multiprocessor / kThreads);
  const auto blocks = static_cast<unsigned>(std::min<int64_t>(resident, ceil_div(count, kThreads)));
  torch_normal_kernel<<<blocks, kThreads, 0, stream.handle()>>>(args.y.data<float>(), count, args.seed);
  stream.enqueued("torch_normal");
}

}  // namespace flux2::cuda
