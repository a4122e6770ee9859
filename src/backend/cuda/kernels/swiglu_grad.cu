#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/layout.cuh"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

template <class T>
struct Pointers {
  const T *gate, *up, *dy;
  T *dgate, *dup;
};

// dgate = dy · up · silu'(gate), dup = dy · silu(gate), a vector of each per thread.
template <class T, int V>
__global__ void swiglu_grad_kernel(const __grid_constant__ Layout<5> layout, const Pointers<T> p) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= layout.count) return;
  int64_t offset[5];
  layout.offsets(i, offset);
  const Pack<T, V> gate = load_pack<V>(p.gate + offset[0]), up = load_pack<V>(p.up + offset[1]),
                   dy = load_pack<V>(p.dy + offset[2]);
  Pack<T, V> dgate, dup;
#pragma unroll
  for (int v = 0; v < V; ++v) {
    const float g = as_float(gate.v[v]), d = as_float(dy.v[v]);
    dgate.v[v] = from_float<T>(d * as_float(up.v[v]) * silu_slope(g));
    dup.v[v] = from_float<T>(d * silu(g));
  }
  store_pack(p.dgate + offset[3], dgate);
  store_pack(p.dup + offset[4], dup);
}

}  // namespace

void swiglu_grad(const SwigluGradArgs& a) {
  if (a.dy.numel() == 0) return;
  CudaStream& stream = stream_for(a.dy);
  const auto layout =
      layout_of<5>(a.dy.shape(), {a.gate.strides(), a.up.strides(), a.dy.strides(), a.dgate.strides(), a.dup.strides()});
  with_float("swiglu_grad", a.dy.dtype(), [&]<class T>(T) {
    bool vectors = true;
    const Tensor* const all[] = {&a.gate, &a.up, &a.dy, &a.dgate, &a.dup};
    for (int n = 0; n < 5; ++n) vectors = vectors && layout.walks(n, all[n]->raw(), kVector<T>, sizeof(T));
    const Pointers<T> p{a.gate.data<T>(), a.up.data<T>(), a.dy.data<T>(), a.dgate.data<T>(), a.dup.data<T>()};
    const auto run = [&]<int V>() {
      const auto space = layout.in_vectors(V);
      swiglu_grad_kernel<T, V><<<blocks_for("swiglu_grad", space.count, kThreads), kThreads, 0, stream.handle()>>>(space, p);
    };
    if (vectors) run.template operator()<kVector<T>>();
    else run.template operator()<1>();
  });
  stream.enqueued("swiglu_grad", {.bytes = traffic({&a.gate, &a.up, &a.dy, &a.dgate, &a.dup})});
}

}  // namespace flux2::cuda
