#include "backend/cuda/kernels/matrix.h"
#include "backend/cuda/kernels/parts.h"
#include "backend/cuda/kernels/stored_values.cuh"

// y[1, N] = x[1, K] · w[N, K]ᵀ: a language model's next token. The time goes into reading w, so a thread asks for several vectors
// of weights before it multiplies the first one.
namespace flux2::cuda {

namespace {

constexpr int kThreads = 128;

// Weights of a plain type, 16 bytes at a time. They are used once: the cache need not keep them.
template <class S>
struct PlainWeights {
  static constexpr int kValues = 16 / sizeof(S), kSteps = sizeof(S) == 1 ? 2 : 4, kMostRows = 2;
  using Fetched = uint4;
  const S* w;

  __device__ Fetched fetch(int64_t i) const { return __ldcs(reinterpret_cast<const uint4*>(w + i)); }
  __device__ static void values(const Fetched& bits, float (&out)[kValues]) {
    Pack<S, kValues> pack;
    memcpy(&pack, &bits, sizeof(bits));
    unpack(pack, out);
  }
};

// Weights in blocks; sixteen neighbours share a group. They are kept decoded, so a second row would cost too many registers.
template <class B>
struct BlockWeights {
  static constexpr int kValues = 16, kSteps = 2, kMostRows = 1;
  struct Fetched {
    float v[kValues];
  };
  Stored<B> w;

  __device__ Fetched fetch(int64_t i) const {
    Fetched f;
    w.load(i, f.v);
    return f;
  }
  __device__ static void values(const Fetched& f, float (&out)[kValues]) {
#pragma unroll
    for (int v = 0; v < kValues; ++v) out[v] = f.v[v];
  }
};

// V values of x, which every block reads: at most 16 bytes at a time.
template <class S, int V>
struct Input {
  static constexpr int kPart = V * sizeof(S) <= 16 ? V : 16 / static_cast<int>(sizeof(S));
  Pack<S, kPart> parts[V / kPart];

  __device__ void fetch(const S* x) {
#pragma unroll
    for (int p = 0; p < V / kPart; ++p) parts[p] = load_pack<kPart>(x + p * kPart);
  }
  __device__ void values(float (&out)[V]) const {
#pragma unroll
    for (int p = 0; p < V / kPart; ++p) unpack(parts[p], out + p * kPart);
  }
};

// What happens to a sum before it is stored. Null pointers are left out; of the biases, at most one is given.
struct Finish {
  const float* x_scale;
  const float* w_scales;
  bool scale_each_row;  // else w_scales[0] is for all
  const float* bias;
  const Bf16* bias_bf16;
  float* y;
  Bf16* y_bf16;  // where y is BF16

  __device__ void store(int64_t n, float sum) const {
    if (x_scale) sum *= *x_scale;
    if (w_scales) sum *= w_scales[scale_each_row ? n : 0];
    if (bias) sum += bias[n];
    if (bias_bf16) sum += as_float(bias_bf16[n]);
    if (y_bf16) y_bf16[n] = from_float<Bf16>(sum);
    else y[n] = sum;
  }
};

// A block computes R neighbours of y. Its threads share K: thread t takes vectors t, t + kThreads, …
template <int R, class Weights, class S>
__global__ void __launch_bounds__(kThreads)
    one_row_kernel(const Weights weights, const S* x, const Finish finish, int64_t rows, int64_t inner) {
  constexpr int V = Weights::kValues, kSteps = Weights::kSteps;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * R;
  float sums[R] = {};
  for (int64_t start = threadIdx.x * V; start < inner; start += kSteps * kThreads * V) {
    typename Weights::Fetched w[kSteps][R];
    Input<S, V> in[kSteps];
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      const int64_t k = start + s * kThreads * V;
      if (k >= inner) continue;
#pragma unroll
      for (int r = 0; r < R; ++r) w[s][r] = weights.fetch(min(first + r, rows - 1) * inner + k);  // past the end: the last row
      in[s].fetch(x + k);
    }
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      if (start + s * kThreads * V >= inner) continue;
      float xs[V], ws[V];
      in[s].values(xs);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        Weights::values(w[s][r], ws);
#pragma unroll
        for (int v = 0; v < V; ++v) sums[r] = fmaf(xs[v], ws[v], sums[r]);
      }
    }
  }

  __shared__ float partial[R][kThreads / 32];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const float sum = warp_sum(sums[r]);
    if (threadIdx.x % 32 == 0) partial[r][threadIdx.x / 32] = sum;
  }
  __syncthreads();
  const int r = threadIdx.x;
  if (r >= R || first + r >= rows) return;
  float total = 0;
  for (int warp = 0; warp < kThreads / 32; ++warp) total += partial[r][warp];
  finish.store(first + r, total);
}

template <class Weights, class S>
void launch(const Weights& weights, const S* x, const Finish& finish, const LinearArgs& args) {
  const int64_t rows = args.w.dim(0), inner = args.w.dim(1);
  const auto run = [&](auto kernel, int rows_of_block) {
    kernel<<<blocks_for("linear", rows, rows_of_block), kThreads, 0, stream_for(args.y).handle()>>>(weights, x, finish, rows,
                                                                                                    inner);
  };
  if (rows < 4096 || Weights::kMostRows == 1) run(one_row_kernel<1, Weights, S>, 1);  // with few rows: more blocks
  else run(one_row_kernel<Weights::kMostRows, Weights, S>, Weights::kMostRows);
}

// With x in F32 or BF16.
template <class Weights>
void launch_float(const Weights& weights, const Finish& finish, const LinearArgs& args) {
  with_float("linear", args.x.dtype(), [&]<class S>(S) { launch(weights, args.x.data<S>(), finish, args); });
}
// With x like that or of the weights' dtype.
template <class S>
void launch_bytes(const Finish& finish, const LinearArgs& args) {
  const PlainWeights<S> weights{args.w.data<S>()};
  if (args.x.dtype() == args.w.dtype()) launch(weights, args.x.data<S>(), finish, args);
  else launch_float(weights, finish, args);
}

// Values that 16 bytes hold; of a block type, those that are decoded together. 0: no weights of that dtype.
int64_t vector_of(DType dtype) {
  if (is_block_type(dtype)) return 16;
  switch (dtype) {
    case DType::F32: return 4;
    case DType::BF16:
    case DType::F16: return 8;
    case DType::I8:
    case DType::F8_E4M3:
    case DType::F8_E5M2: return 16;
    default: return 0;
  }
}

bool scales_are_contiguous(const Tensor& t) { return !t.scales().defined() || t.scales().is_contiguous(); }

}  // namespace

bool one_row_product_fits(const LinearArgs& args) {
  const Tensor &x = args.x, &w = args.w, &y = args.y;
  const int64_t vector = vector_of(w.dtype());
  const bool eight_bits = x.dtype() == w.dtype() && (x.dtype() == DType::F8_E4M3 || x.dtype() == DType::I8);
  return x.dim(0) == 1 && vector > 0 && w.dim(1) > 0 && w.dim(1) % vector == 0 &&
         (x.dtype() == DType::BF16 || x.dtype() == DType::F32 || eight_bits) &&
         (y.dtype() == DType::BF16 || y.dtype() == DType::F32) && w.is_contiguous() && (x.dim(1) == 1 || x.stride(1) == 1) &&
         (y.dim(1) == 1 || y.stride(1) == 1) && is_aligned(x.raw(), 16) &&
         (is_block_type(w.dtype()) || is_aligned(w.raw(), 16)) && scales_are_contiguous(x) && scales_are_contiguous(w);
}

void one_row_product(const LinearArgs& args) {
  const Tensor &x = args.x, &w = args.w, &y = args.y;
  Finish finish{};
  if (x.scales().defined()) finish.x_scale = x.scales().data<float>();
  if (w.scales().defined()) {
    finish.w_scales = w.scales().data<float>();
    finish.scale_each_row = w.scales().numel() > 1;
  }
  Tensor bias;
  if (args.bias) {
    bias = weight_vector(*args.bias, y.dtype());
    if (bias.dtype() == DType::F32) finish.bias = bias.data<float>();
    else finish.bias_bf16 = bias.data<Bf16>();
  }
  if (y.dtype() == DType::BF16) finish.y_bf16 = y.data<Bf16>();
  else finish.y = y.data<float>();

  switch (w.dtype()) {
    case DType::F32: launch_float(PlainWeights<float>{w.data<float>()}, finish, args); break;
    case DType::BF16: launch_float(PlainWeights<Bf16>{w.data<Bf16>()}, finish, args); break;
    case DType::F16: launch_float(PlainWeights<__half>{w.data<__half>()}, finish, args); break;
    case DType::I8: launch_bytes<int8_t>(finish, args); break;
    case DType::F8_E4M3: launch_bytes<__nv_fp8_e4m3>(finish, args); break;
    case DType::F8_E5M2: launch_float(PlainWeights<__nv_fp8_e5m2>{w.data<__nv_fp8_e5m2>()}, finish, args); break;
    default:
      with_blocks("linear", w.dtype(), [&]<class B>(B) { launch_float(BlockWeights<B>{{w.data<uint8_t>()}}, finish, args); });
  }
  stream_for(y).enqueued("linear one row", product_cost(x, w, y, {1, w.dim(0), w.dim(1)}));
}

}  // namespace flux2::cuda
