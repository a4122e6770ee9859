#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/head_places.cuh"
#include "backend/cuda/kernels/kernels.h"

namespace flux2::cuda {

namespace {

constexpr int kHeadsPerThread = 2;  // a head of x and one of dy each: four loads in flight before the first is used

template <class T, class W>
struct NormRopeGradArguments {
  const T *x, *dy;
  T* dx;
  const W* weight;
  const float *cosine, *sine;
  int64_t x_batch, x_token, x_head, dy_batch, dy_token, dy_head, dx_batch, dx_token, dx_head;  // strides
  int rows, tokens, heads;                                                                     // rows: tokens of all samples
  float eps;
};

// Turns dy back by its angle, then dx = r · (g − n · mean(g · n)) with g = weight · dy. Threads as in norm_rope_kernel:
// kGroup of them hold a head of kGroup · V elements.
template <class T, class W, int V, int kGroup, int kThreads, bool kInterleaved, bool kOneToken>
__global__ void __launch_bounds__(kThreads) norm_rope_grad_kernel(const __grid_constant__ NormRopeGradArguments<T, W> a) {
  constexpr int kWidth = kGroup * V, kPairs = kInterleaved ? V / 2 : V, kSlots = kThreads / kGroup;
  const int lane = threadIdx.x % kGroup, slot = threadIdx.x / kGroup;
  const HeadPlaces<kSlots, kHeadsPerThread, kOneToken> places{slot, a.rows, a.heads};
  const int pair = kInterleaved ? lane * kPairs : (lane % (kGroup / 2)) * V;
  const float sign = kInterleaved || lane < kGroup / 2 ? 1.0f : -1.0f;
  constexpr int kAngles = kOneToken ? 1 : kHeadsPerThread;
  Pack<T, V> in[kHeadsPerThread] = {}, turned[kHeadsPerThread] = {};
  Pack<float, kPairs> c[kAngles] = {}, s[kAngles] = {};
#pragma unroll
  for (int h = 0; h < kHeadsPerThread; ++h) {
    const auto p = places[h];
    if (!places.have(p)) continue;
    const int64_t batch = p.row / a.tokens, token = p.row % a.tokens;
    in[h] = load_pack<V>(a.x + batch * a.x_batch + token * a.x_token + p.head * a.x_head + lane * V);
    turned[h] = load_pack<V>(a.dy + batch * a.dy_batch + token * a.dy_token + p.head * a.dy_head + lane * V);
    if (kOneToken && h > 0) continue;
    const int64_t angles = token * (kWidth / 2) + pair;
    c[h] = load_pack<kPairs>(a.cosine + angles);
    s[h] = load_pack<kPairs>(a.sine + angles);
  }
  const Pack<W, V> weight = load_pack<V>(a.weight + lane * V);

#pragma unroll
  for (int h = 0; h < kHeadsPerThread; ++h) {
    const auto p = places[h];
    const Pack<float, kPairs>&cs = c[kOneToken ? 0 : h], &sn = s[kOneToken ? 0 : h];
    float g[V], squares = 0, product = 0;
    if constexpr (kInterleaved) {
#pragma unroll
      for (int q = 0; q < kPairs; ++q) {
        const float even = as_float(turned[h].v[2 * q]), odd = as_float(turned[h].v[2 * q + 1]);
        g[2 * q] = even * cs.v[q] + odd * sn.v[q];
        g[2 * q + 1] = odd * cs.v[q] - even * sn.v[q];
      }
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float mine = as_float(turned[h].v[v]);
        g[v] = mine * cs.v[v] + sign * __shfl_xor_sync(0xffffffffu, mine, kGroup / 2) * sn.v[v];
      }
    }
#pragma unroll
    for (int v = 0; v < V; ++v) {
      const float value = as_float(in[h].v[v]);
      g[v] *= as_float(weight.v[v]);
      squares += value * value;
      product += g[v] * value;
    }
#pragma unroll
    for (int step = kGroup / 2; step > 0; step /= 2) {
      squares += __shfl_xor_sync(0xffffffffu, squares, step);
      product += __shfl_xor_sync(0xffffffffu, product, step);
    }
    const float inverse = rsqrtf(squares / kWidth + a.eps);
    const float slope = product / kWidth * inverse * inverse;
    Pack<T, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v) out.v[v] = from_float<T>(inverse * (g[v] - as_float(in[h].v[v]) * slope));
    if (!places.have(p)) continue;
    const int64_t batch = p.row / a.tokens, token = p.row % a.tokens;
    store_pack(a.dx + batch * a.dx_batch + token * a.dx_token + p.head * a.dx_head + lane * V, out);
  }
}

bool heads_start_aligned(const Tensor& t, int v) {
  bool aligned = is_aligned(t.raw(), 16) && t.stride(3) == 1;
  for (int axis = 0; axis < 3; ++axis) aligned = aligned && (t.dim(axis) == 1 || t.stride(axis) % v == 0);
  return aligned;
}

// Other widths and alignments: the two steps one after the other.
void in_two_steps(const NormRopeGradArgs& args) {
  const Tensor dn = Tensor::like(args.x);
  rope({args.dy, args.cosine, args.sine, dn, args.interleaved, true});
  rms_norm_grad({args.x, args.weight, dn, &args.dx, nullptr, args.eps});
}

}  // namespace

void norm_rope_grad(const NormRopeGradArgs& args) {
  const Tensor &x = args.x, &dy = args.dy, &dx = args.dx;
  if (dx.numel() == 0) return;
  CudaStream& stream = stream_for(dx);
  const Tensor cosine = args.cosine.contiguous(), sine = args.sine.contiguous();
  const Tensor weight = weight_vector(args.weight, x.dtype());
  const int64_t d = x.dim(3);
  with_float_and_weight("norm_rope_grad", x.dtype(), weight.dtype(), [&]<class T, class W>(T, W) {
    constexpr int V = kVector<T>;
    const NormRopeGradArguments<T, W> a{x.data<T>(),
                                        dy.data<T>(),
                                        dx.data<T>(),
                                        weight.data<W>(),
                                        cosine.data<float>(),
                                        sine.data<float>(),
                                        x.stride(0),
                                        x.stride(1),
                                        x.stride(2),
                                        dy.stride(0),
                                        dy.stride(1),
                                        dy.stride(2),
                                        dx.stride(0),
                                        dx.stride(1),
                                        dx.stride(2),
                                        static_cast<int>(x.dim(0) * x.dim(1)),
                                        static_cast<int>(x.dim(1)),
                                        static_cast<int>(x.dim(2)),
                                        args.eps};
    const int64_t rows = x.dim(0) * x.dim(1), heads = x.dim(2);
    const auto launch = [&]<int kGroup, int kThreads, bool kOneToken>() {
      constexpr int64_t kHeads = kThreads / kGroup * kHeadsPerThread;
      const dim3 grid = kOneToken ? dim3(blocks_for("norm_rope_grad", rows, 1), blocks_for("norm_rope_grad", heads, kHeads))
                                  : dim3(blocks_for("norm_rope_grad", rows * heads, kHeads));
      const auto kernel = args.interleaved ? norm_rope_grad_kernel<T, W, V, kGroup, kThreads, true, kOneToken>
                                           : norm_rope_grad_kernel<T, W, V, kGroup, kThreads, false, kOneToken>;
      kernel<<<grid, kThreads, 0, stream.handle()>>>(a);
      stream.enqueued("norm_rope_grad", {.bytes = traffic({&x, &dy, &dx})});
    };
    const auto run = [&]<int kGroup>() {  // 24 heads of 128 BF16 leave none of 192 threads idle
      if (heads <= 128 / kGroup) launch.template operator()<kGroup, 128, false>();
      else if (heads % (192 / kGroup * kHeadsPerThread) == 0) launch.template operator()<kGroup, 192, true>();
      else launch.template operator()<kGroup, 128, true>();
    };
    const bool aligned = heads_start_aligned(x, V) && heads_start_aligned(dy, V) && heads_start_aligned(dx, V) &&
                         is_aligned(weight.raw(), sizeof(W) * V) && is_aligned(cosine.raw(), 32) && is_aligned(sine.raw(), 32);
    if (aligned && d == 8 * V) run.template operator()<8>();
    else if (aligned && d == 16 * V) run.template operator()<16>();
    else if (aligned && d == 32 * V) run.template operator()<32>();
    else in_two_steps(args);
  });
}

}  // namespace flux2::cuda
