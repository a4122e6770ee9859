#include <vector>

#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/optimiser.cuh"

namespace flux2::cuda {

namespace {

constexpr int kThreads = kOptimiserThreads;

template <OptimiserRule kRule>
__global__ void __launch_bounds__(kThreads)
    update_plain(const __grid_constant__ OptimiserTable table, const __grid_constant__ OptimiserStep step) {
  constexpr int kStates = state_count(kRule);
  const TensorPart part = part_of(table, blockIdx.x);
  const OptimiserTensor t = table.tensors[part.tensor];
  const int64_t begin = part.index * kOptimiserChunk, end = min(t.count, begin + kOptimiserChunk);
  float* x = static_cast<float*>(t.state[0]);
  float* y = static_cast<float*>(t.state[1]);
  float* z = static_cast<float*>(t.state[2]);
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    OptimiserElement e;
    e.p = load_parameter(t, i);
    if constexpr (kRule != OptimiserRule::Interpolate) e.g = load_gradient(t, step, i);
    if constexpr (kStates > 0) e.a = x[i];
    if constexpr (kStates > 1) e.b = y[i];
    if constexpr (kStates > 2) e.c = z[i];
    update_element<kRule>(step.numbers, t, e);
    if constexpr (kStates > 0) x[i] = e.a;
    if constexpr (kStates > 1) y[i] = e.b;
    if constexpr (kStates > 2) z[i] = e.c;
    if (kRule == OptimiserRule::Interpolate && t.p_is_bf16) static_cast<Bf16*>(t.p)[i] = __float2bfloat16_rn(e.p);
    else store_parameter(t, step, i, e.p);
  }
}

// The threads of a block take one block of codes at a time, and then agree on its new maximum.
template <OptimiserRule kRule>
__global__ void __launch_bounds__(kThreads)
    update_8bit(const __grid_constant__ OptimiserTable table, const __grid_constant__ OptimiserStep step) {
  static_assert(kThreads == kCodeBlock);
  constexpr int kStates = state_count(kRule);
  __shared__ float books[2][256];
  books[0][threadIdx.x] = step.signed_codes[threadIdx.x];
  books[1][threadIdx.x] = step.unsigned_codes[threadIdx.x];
  __syncthreads();
  const TensorPart part = part_of(table, blockIdx.x);
  const OptimiserTensor t = table.tensors[part.tensor];
  const int64_t begin = part.index * kOptimiserChunk, end = min(t.count, begin + kOptimiserChunk);
  for (int64_t first = begin; first < end; first += kCodeBlock) {
    const int64_t i = first + threadIdx.x, block = first / kCodeBlock;
    const bool inside = i < end;
    OptimiserElement e;
    float s[3] = {};
    if (inside) {
      e.p = load_parameter(t, i);
      e.g = load_gradient(t, step, i);
#pragma unroll
      for (int k = 0; k < kStates; ++k)
        s[k] = books[has_signed_codes(k) ? 0 : 1][static_cast<const uint8_t*>(t.state[k])[i]] *
               static_cast<const float*>(t.state[kStates + k])[block];
      e.a = s[0], e.b = s[1], e.c = s[2];
      if (isfinite(e.g)) update_element<kRule>(step.numbers, t, e);
      else e.a = e.b = e.c = 0;
      s[0] = e.a, s[1] = e.b, s[2] = e.c;
      store_parameter(t, step, i, e.p);
    }
#pragma unroll
    for (int k = 0; k < kStates; ++k) {
      const float largest = block_max<kThreads>(fabsf(s[k]));  // its barriers also keep reads of the old maximum in front
      if (inside)
        static_cast<uint8_t*>(t.state[k])[i] = code_of(books[has_signed_codes(k) ? 0 : 1], has_signed_codes(k), s[k], largest);
      if (threadIdx.x == 0) static_cast<float*>(t.state[kStates + k])[block] = largest;
    }
  }
}

// partial[chunk]: Σ g · (p0 − p) and Σ |s|
__global__ void __launch_bounds__(kThreads)
    prodigy_sums(const __grid_constant__ OptimiserTable table, const __grid_constant__ OptimiserStep step, double* partial) {
  const TensorPart part = part_of(table, blockIdx.x);
  const OptimiserTensor t = table.tensors[part.tensor];
  const int64_t begin = part.index * kOptimiserChunk, end = min(t.count, begin + kOptimiserChunk);
  float* m = static_cast<float*>(t.state[0]);
  float* v = static_cast<float*>(t.state[1]);
  float* s = static_cast<float*>(t.state[2]);
  const float* start = static_cast<const float*>(t.state[3]);
  double products = 0, sizes = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    OptimiserElement e;
    e.p = load_parameter(t, i);
    e.g = load_gradient(t, step, i);
    e.a = m[i];
    e.b = v[i];
    prodigy_moments(step.numbers, t, e);
    m[i] = e.a;
    v[i] = e.b;
    if (i % step.numbers.slice != 0) continue;
    const int64_t at = i / step.numbers.slice;
    const float moved = prodigy_s(step.numbers, s[at], e.g);
    s[at] = moved;
    products += static_cast<double>(e.g) * static_cast<double>(start[at] - e.p);
    sizes += static_cast<double>(fabsf(moved));
  }
  products = block_sum<kThreads>(products);
  sizes = block_sum<kThreads>(sizes);
  if (threadIdx.x == 0)
    partial[2 * static_cast<int64_t>(blockIdx.x)] = products, partial[2 * static_cast<int64_t>(blockIdx.x) + 1] = sizes;
}

__global__ void __launch_bounds__(kThreads)
    squared_gradients(const __grid_constant__ OptimiserTable table, const __grid_constant__ OptimiserStep step, double* partial) {
  const TensorPart part = part_of(table, blockIdx.x);
  const OptimiserTensor t = table.tensors[part.tensor];
  const int64_t begin = part.index * kOptimiserChunk, end = min(t.count, begin + kOptimiserChunk);
  double squares = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const double g = load_gradient(t, step, i);
    squares += g * g;
  }
  squares = block_sum<kThreads>(squares);
  if (threadIdx.x == 0)
    partial[2 * static_cast<int64_t>(blockIdx.x)] = squares, partial[2 * static_cast<int64_t>(blockIdx.x) + 1] = 0;
}

// One block adds all pairs: thread by thread, then over the threads, always in the same order.
__global__ void __launch_bounds__(kThreads) add_pairs(const double* partial, int64_t pairs, double* sums) {
  double first = 0, second = 0;
  for (int64_t i = threadIdx.x; i < pairs; i += kThreads) first += partial[2 * i], second += partial[2 * i + 1];
  first = block_sum<kThreads>(first);
  second = block_sum<kThreads>(second);
  if (threadIdx.x == 0) sums[0] = first, sums[1] = second;
}

int64_t chunks_of(const OptimiserTensor& t) { return ceil_div(t.count, kOptimiserChunk); }

template <class Kernel>
void launch_chunks(OptimiserLaunch& launch, Kernel kernel) {
  const PartTable chunks = launch.table(chunks_of);
  if (chunks.parts == 0) return;
  kernel<<<blocks_for("optimise", chunks.parts, 1), kThreads, 0, launch.stream().handle()>>>(chunks.table, launch.step());
  launch.stream().enqueued("optimise");
}

template <class Kernel>
void launch_sums(OptimiserLaunch& launch, Kernel kernel, double* sums) {
  CudaStream& stream = launch.stream();
  const PartTable chunks = launch.table(chunks_of);
  const auto partial = stream.allocate(static_cast<size_t>(2 * chunks.parts + 2) * sizeof(double));
  auto* pairs = static_cast<double*>(partial.get());
  if (chunks.parts > 0) {
    kernel<<<blocks_for("optimise", chunks.parts, 1), kThreads, 0, stream.handle()>>>(chunks.table, launch.step(), pairs);
    stream.enqueued("optimise");
  }
  add_pairs<<<1, kThreads, 0, stream.handle()>>>(pairs, chunks.parts, sums);
  stream.enqueued("optimise");
}

}  // namespace

void optimise(const OptimiseArgs& a) {
  using R = OptimiserRule;
  OptimiserLaunch launch(a);
  switch (a.rule) {
    case R::AdamW: return launch_chunks(launch, update_plain<R::AdamW>);
    case R::Lion: return launch_chunks(launch, update_plain<R::Lion>);
    case R::Sgd: return launch_chunks(launch, update_plain<R::Sgd>);
    case R::SgdMomentum: return launch_chunks(launch, update_plain<R::SgdMomentum>);
    case R::AdEmaMix: return launch_chunks(launch, update_plain<R::AdEmaMix>);
    case R::ScheduleFree: return launch_chunks(launch, update_plain<R::ScheduleFree>);
    case R::Interpolate: return launch_chunks(launch, update_plain<R::Interpolate>);
    case R::ProdigyUpdate: return launch_chunks(launch, update_plain<R::ProdigyUpdate>);
    case R::AdamWDecayLast: return launch_chunks(launch, update_plain<R::AdamWDecayLast>);
    case R::AdamW8bit: return launch_chunks(launch, update_8bit<R::AdamW8bit>);
    case R::Lion8bit: return launch_chunks(launch, update_8bit<R::Lion8bit>);
    case R::AdEmaMix8bit: return launch_chunks(launch, update_8bit<R::AdEmaMix8bit>);
    case R::Adafactor:
    case R::Came: return optimise_factored(launch, a);
    case R::ProdigySums: return launch_sums(launch, prodigy_sums, a.sums);
    case R::SquaredGradients: return launch_sums(launch, squared_gradients, a.sums);
  }
}

}  // namespace flux2::cuda
