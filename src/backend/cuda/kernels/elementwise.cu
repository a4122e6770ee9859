#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/layout.cuh"

// y = f(inputs…) element by element, computed in F32, over any strides. unary, binary, scale, gated_add and swiglu are
// this one kernel under different functions.
namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

// N tensors, the last of which is written.
template <class T, int N>
struct Operands {
  T* data[N];
  bool splat[N];  // stride 0 along the last axis: one value for a whole vector
};

template <class F, int V, size_t... I>
__device__ inline float apply(const F& f, const float (&in)[sizeof...(I)][V], int v, std::index_sequence<I...>) {
  return f(in[I][v]...);
}

// A vector per thread: two, loaded before either is used, were not faster on an H200 at 4608 rows (measured on two machines).
template <class T, int V, int N, class F>
__global__ void elementwise_kernel(const __grid_constant__ Layout<N> layout, const __grid_constant__ Operands<T, N> operands,
                                   F f) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= layout.count) return;
  int64_t offset[N];
  layout.offsets(i, offset);

  float in[N - 1][V];
#pragma unroll
  for (int n = 0; n < N - 1; ++n) {
    const T* p = operands.data[n] + offset[n];
    if (V > 1 && operands.splat[n]) {
      const float value = as_float(*p);
#pragma unroll
      for (int v = 0; v < V; ++v) in[n][v] = value;
    } else {
      const Pack<T, V> pack = load_pack<V>(p);
#pragma unroll
      for (int v = 0; v < V; ++v) in[n][v] = as_float(pack.v[v]);
    }
  }
  Pack<T, V> out;
#pragma unroll
  for (int v = 0; v < V; ++v) out.v[v] = from_float<T>(apply(f, in, v, std::make_index_sequence<N - 1>{}));
  store_pack(operands.data[N - 1] + offset[N - 1], out);
}

template <class F, class... Tensors>
void elementwise(const char* op, const F& f, const Tensors&... tensors) {
  constexpr int N = sizeof...(Tensors);
  const Tensor* const all[N] = {&tensors...};
  const Tensor& y = *all[N - 1];
  if (y.numel() == 0) return;
  CudaStream& stream = stream_for(y);
  const Layout<N> layout = layout_of<N>(y.shape(), {tensors.strides()...});
  with_float(op, y.dtype(), [&]<class T>(T) {
    Operands<T, N> operands{};
    bool vectors = true;
    for (int n = 0; n < N; ++n) {
      operands.data[n] = all[n]->template data<T>();
      operands.splat[n] = n < N - 1 && layout.stride[n][layout.rank - 1] == 0;
      vectors = vectors && (operands.splat[n] || layout.walks(n, all[n]->raw(), kVector<T>, sizeof(T)));
    }
    const auto run = [&]<int V>() {
      const auto space = layout.in_vectors(V);
      elementwise_kernel<T, V, N, F><<<blocks_for(op, space.count, kThreads), kThreads, 0, stream.handle()>>>(space, operands, f);
    };
    if (vectors) run.template operator()<kVector<T>>();
    else run.template operator()<1>();
  });
  stream.enqueued(op, {.bytes = traffic({&tensors...})});
}

struct SiluOf {
  __device__ float operator()(float x) const { return silu(x); }
};
struct ExpOf {
  __device__ float operator()(float x) const { return expf(x); }
};
struct AbsOf {
  __device__ float operator()(float x) const { return fabsf(x); }
};
struct SquareOf {
  __device__ float operator()(float x) const { return x * x; }
};

struct SiluGrad {
  __device__ float operator()(float x, float dy) const { return dy * silu_slope(x); }
};
struct ExpGrad {
  __device__ float operator()(float x, float dy) const { return dy * expf(x); }
};
struct AbsGrad {
  __device__ float operator()(float x, float dy) const { return x > 0 ? dy : x < 0 ? -dy : 0.0f; }
};
struct SquareGrad {
  __device__ float operator()(float x, float dy) const { return 2.0f * x * dy; }
};

struct Sum {
  __device__ float operator()(float a, float b) const { return a + b; }
};
struct Difference {
  __device__ float operator()(float a, float b) const { return a - b; }
};
struct ProductOf {
  __device__ float operator()(float a, float b) const { return a * b; }
};

struct Affine {
  float factor, offset;
  __device__ float operator()(float x) const { return factor * x + offset; }
};
struct GatedSum {
  __device__ float operator()(float x, float gate, float z) const { return x + gate * z; }
};
struct Swiglu {
  __device__ float operator()(float gate, float up) const { return silu(gate) * up; }
};

}  // namespace

void unary(const UnaryArgs& a) {
  switch (a.op) {
    case Unary::Silu: return elementwise("silu", SiluOf{}, a.x, a.y);
    case Unary::Exp: return elementwise("exp", ExpOf{}, a.x, a.y);
    case Unary::Abs: return elementwise("abs", AbsOf{}, a.x, a.y);
    case Unary::Square: return elementwise("square", SquareOf{}, a.x, a.y);
  }
}

void unary_grad(const UnaryGradArgs& a) {
  switch (a.op) {
    case Unary::Silu: return elementwise("silu_grad", SiluGrad{}, a.x, a.dy, a.dx);
    case Unary::Exp: return elementwise("exp_grad", ExpGrad{}, a.x, a.dy, a.dx);
    case Unary::Abs: return elementwise("abs_grad", AbsGrad{}, a.x, a.dy, a.dx);
    case Unary::Square: return elementwise("square_grad", SquareGrad{}, a.x, a.dy, a.dx);
  }
}

void binary(const BinaryArgs& a) {
  switch (a.op) {
    case Binary::Add: return elementwise("add", Sum{}, a.a, a.b, a.y);
    case Binary::Sub: return elementwise("subtract", Difference{}, a.a, a.b, a.y);
    case Binary::Mul: return elementwise("multiply", ProductOf{}, a.a, a.b, a.y);
  }
}

void scale(const ScaleArgs& a) {
  elementwise("affine", Affine{static_cast<float>(a.factor), static_cast<float>(a.offset)}, a.x, a.y);
}

void gated_add(const GatedAddArgs& a) { elementwise("gated_add", GatedSum{}, a.x, a.gate.expanded(a.x.shape()), a.z, a.y); }

void swiglu(const SwigluArgs& a) { elementwise("swiglu", Swiglu{}, a.gate, a.up, a.y); }

}  // namespace flux2::cuda
