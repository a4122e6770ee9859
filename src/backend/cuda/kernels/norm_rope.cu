#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/head_places.cuh"
#include "backend/cuda/kernels/kernels.h"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 128;

template <class T, class W>
struct NormRopeArguments {
  const T* x;
  T* y;
  const W *weight, *second_weight;  // of heads from `half` on
  const float *cosine, *sine;
  int64_t x_batch, x_token, x_head, y_batch, y_token, y_head;  // strides
  int rows, tokens, heads, half;                               // rows: tokens of all samples
  float eps;
};

// kGroup threads hold a head of kGroup · V elements, kHeadsPerThread heads one after the other, whose loads are all in flight
// before the first is used.
template <class T, class W, int V, int kGroup, int kHeadsPerThread, bool kInterleaved, bool kOneToken>
__global__ void __launch_bounds__(kThreads) norm_rope_kernel(const __grid_constant__ NormRopeArguments<T, W> a) {
  constexpr int kWidth = kGroup * V, kPairs = kInterleaved ? V / 2 : V;
  const int lane = threadIdx.x % kGroup, slot = threadIdx.x / kGroup;
  constexpr int kSlots = kThreads / kGroup;
  const HeadPlaces<kSlots, kHeadsPerThread, kOneToken> places{slot, a.rows, a.heads};

  // Interleaved: pairs of neighbours, all mine. Halves: my partners are kGroup / 2 lanes away.
  const int pair = kInterleaved ? lane * kPairs : (lane % (kGroup / 2)) * V;
  const float sign = kInterleaved || lane < kGroup / 2 ? -1.0f : 1.0f;
  constexpr int kAngles = kOneToken ? 1 : kHeadsPerThread;
  Pack<T, V> in[kHeadsPerThread];
  Pack<float, kPairs> c[kAngles], s[kAngles];
#pragma unroll
  for (int h = 0; h < kHeadsPerThread; ++h) {
    const auto p = places[h];
    if (!places.have(p)) continue;
    const int64_t batch = p.row / a.tokens, token = p.row % a.tokens;
    in[h] = load_pack<V>(a.x + batch * a.x_batch + token * a.x_token + p.head * a.x_head + lane * V);
    if (kOneToken && h > 0) continue;
    const int64_t angles = token * (kWidth / 2) + pair;
    c[h] = load_pack<kPairs>(a.cosine + angles);
    s[h] = load_pack<kPairs>(a.sine + angles);
  }
  const Pack<W, V> weights[2] = {load_pack<V>(a.weight + lane * V), load_pack<V>(a.second_weight + lane * V)};

#pragma unroll
  for (int h = 0; h < kHeadsPerThread; ++h) {
    const auto p = places[h];
    const int head = p.head;
    const bool mine = places.have(p);  // threads of other groups in this warp still take part in the shuffles
    const Pack<float, kPairs>&cs = c[kOneToken ? 0 : h], &sn = s[kOneToken ? 0 : h];
    float value[V], squares = 0;
#pragma unroll
    for (int v = 0; v < V; ++v) {
      value[v] = mine ? as_float(in[h].v[v]) : 0.0f;
      squares += value[v] * value[v];
    }
#pragma unroll
    for (int step = kGroup / 2; step > 0; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
    const float inverse = rsqrtf(squares / kWidth + a.eps);
#pragma unroll
    for (int v = 0; v < V; ++v) value[v] *= inverse * as_float(head < a.half ? weights[0].v[v] : weights[1].v[v]);

    Pack<T, V> out;
    if constexpr (kInterleaved) {
#pragma unroll
      for (int q = 0; q < kPairs; ++q) {
        out.v[2 * q] = from_float<T>(value[2 * q] * cs.v[q] - value[2 * q + 1] * sn.v[q]);
        out.v[2 * q + 1] = from_float<T>(value[2 * q + 1] * cs.v[q] + value[2 * q] * sn.v[q]);
      }
    } else {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float partner = __shfl_xor_sync(0xffffffffu, value[v], kGroup / 2);
        out.v[v] = from_float<T>(value[v] * cs.v[v] + sign * partner * sn.v[v]);
      }
    }
    const int64_t batch = p.row / a.tokens, token = p.row % a.tokens;
    if (mine) store_pack(a.y + batch * a.y_batch + token * a.y_token + head * a.y_head + lane * V, out);
  }
}

bool heads_start_aligned(const Tensor& t, int v) {
  bool aligned = is_aligned(t.raw(), 16);
  for (int axis = 0; axis < 3; ++axis) aligned = aligned && (t.dim(axis) == 1 || t.stride(axis) % v == 0);
  return aligned;
}

// Other widths and alignments: the two steps one after the other.
void in_two_steps(const NormRopeArgs& args) {
  const Tensor normed = Tensor::like(args.x);
  const int64_t half = args.x.dim(2) / 2;
  if (args.second_weight) {
    rms_norm({args.x.narrowed(2, 0, half), args.weight, normed.narrowed(2, 0, half), args.eps});
    rms_norm({args.x.narrowed(2, half, half), *args.second_weight, normed.narrowed(2, half, half), args.eps});
  } else {
    rms_norm({args.x, args.weight, normed, args.eps});
  }
  rope({normed, args.cosine, args.sine, args.y, args.interleaved, false});
}

}  // namespace

void norm_rope(const NormRopeArgs& args) {
  const Tensor &x = args.x, &y = args.y;
  if (y.numel() == 0) return;
  CudaStream& stream = stream_for(y);
  const Tensor cosine = args.cosine.contiguous(), sine = args.sine.contiguous();
  const Tensor weight = weight_vector(args.weight, x.dtype());
  const Tensor second = args.second_weight ? weight_vector(*args.second_weight, x.dtype()) : weight;
  if (second.dtype() != weight.dtype()) return in_two_steps(args);
  const int64_t d = x.dim(3), heads = x.dim(2);
  with_float_and_weight("norm_rope", x.dtype(), weight.dtype(), [&]<class T, class W>(T, W) {
    constexpr int V = kVector<T>;
    const NormRopeArguments<T, W> a{x.data<T>(),
                                    y.data<T>(),
                                    weight.data<W>(),
                                    second.data<W>(),
                                    cosine.data<float>(),
                                    sine.data<float>(),
                                    x.stride(0),
                                    x.stride(1),
                                    x.stride(2),
                                    y.stride(0),
                                    y.stride(1),
                                    y.stride(2),
                                    static_cast<int>(x.dim(0) * x.dim(1)),
                                    static_cast<int>(x.dim(1)),
                                    static_cast<int>(heads),
                                    static_cast<int>(args.second_weight ? heads / 2 : heads),
                                    args.eps};
    const int64_t rows = x.dim(0) * x.dim(1);
    const auto launch = [&]<int kGroup, int kHeadsPerThread, bool kOneToken>() {
      constexpr int64_t kHeads = kThreads / kGroup * kHeadsPerThread;
      const dim3 grid = kOneToken ? dim3(blocks_for("norm_rope", rows, 1), blocks_for("norm_rope", heads, kHeads))
                                  : dim3(blocks_for("norm_rope", rows * heads, kHeads));
      const auto kernel = args.interleaved ? norm_rope_kernel<T, W, V, kGroup, kHeadsPerThread, true, kOneToken>
                                           : norm_rope_kernel<T, W, V, kGroup, kHeadsPerThread, false, kOneToken>;
      kernel<<<grid, kThreads, 0, stream.handle()>>>(a);
      stream.enqueued("norm_rope", {.bytes = traffic({&x, &y})});
    };
    const auto run = [&]<int kGroup>() {  // three or four heads, whichever leaves no thread idle
      constexpr int64_t kSlots = kThreads / kGroup;
      if (heads <= 2 * kSlots) launch.template operator()<kGroup, 4, false>();
      else if (heads % (kSlots * 3) == 0) launch.template operator()<kGroup, 3, true>();
      else launch.template operator()<kGroup, 4, true>();
    };
    const bool aligned = x.stride(3) == 1 && y.stride(3) == 1 && heads_start_aligned(x, V) && heads_start_aligned(y, V) &&
                         is_aligned(weight.raw(), sizeof(W) * V) && is_aligned(second.raw(), sizeof(W) * V) &&
                         is_aligned(cosine.raw(), 32) && is_aligned(sine.raw(), 32);
    if (aligned && d == 8 * V) run.template operator()<8>();
    else if (aligned && d == 16 * V) run.template operator()<16>();
    else if (aligned && d == 32 * V) run.template operator()<32>();
    else in_two_steps(args);
  });
}

}  // namespace flux2::cuda
