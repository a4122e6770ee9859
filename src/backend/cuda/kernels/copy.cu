#include <type_traits>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/layout.cuh"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

// --- The same dtype: bytes move, as many at once as both sides' strides and addresses allow. ---

template <class T>
__global__ void move_kernel(const __grid_constant__ Layout<2> layout, const T* x, T* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= layout.count) return;
  int64_t offset[2];
  layout.offsets(i, offset);
  y[offset[1]] = x[offset[0]];
}

template <class T>
void launch_move(const Tensor& x, const Tensor& y, Layout<2> layout, int elements) {
  CudaStream& stream = stream_for(y);
  // From here on the unit is T.
  for (int n = 0; n < 2; ++n) {
    for (int axis = 0; axis < layout.rank - 1; ++axis) layout.stride[n][axis] /= elements;
    if (elements > 1) layout.stride[n][layout.rank - 1] = 1;
  }
  layout.shape[layout.rank - 1] /= elements;
  layout.count /= elements;
  move_kernel<T><<<blocks_for("copy", layout.count, kThreads), kThreads, 0, stream.handle()>>>(layout, x.data<T>(), y.data<T>());
  stream.enqueued("copy", {.bytes = traffic({&x, &y})});
}

void move(const Tensor& x, const Tensor& y) {
  if (x.is_contiguous() && y.is_contiguous()) {
    CudaStream& stream = stream_for(y);
    check_cuda(cudaMemcpyAsync(y.raw(), x.raw(), static_cast<size_t>(y.bytes()), cudaMemcpyDeviceToDevice, stream.handle()),
               "copy");
    stream.enqueued("copy", {.bytes = traffic({&x, &y})});
    return;
  }
  if (is_block_type(x.dtype())) refuse_dtype("copy of a strided view", x.dtype());
  const auto layout = layout_of<2>(x.shape(), {x.strides(), y.strides()});
  const auto width = static_cast<size_t>(info(x.dtype()).block_bytes);
  size_t unit = 16;
  for (; unit > width; unit /= 2) {
    const int elements = static_cast<int>(unit / width);
    if (layout.walks(0, x.raw(), elements, width) && layout.walks(1, y.raw(), elements, width)) break;
  }
  const int elements = static_cast<int>(unit / width);
  switch (unit) {
    case 16: return launch_move<uint4>(x, y, layout, elements);
    case 8: return launch_move<uint2>(x, y, layout, elements);
    case 4: return launch_move<uint32_t>(x, y, layout, elements);
    case 2: return launch_move<uint16_t>(x, y, layout, elements);
    default: return launch_move<uint8_t>(x, y, layout, elements);
  }
}

// --- Another dtype. Whole numbers and doubles pass through double, which holds them; the rest through float. ---

template <class S>
using Wide = std::conditional_t<std::is_arithmetic_v<S> && !std::is_same_v<S, float>, double, float>;

template <class D>
struct Narrow {
  template <class W>
  static __device__ D from(W v) {
    return static_cast<D>(v);
  }
};
template <>
struct Narrow<Bf16> {
  static __device__ Bf16 from(float v) { return __float2bfloat16_rn(v); }
  static __device__ Bf16 from(double v) { return __double2bfloat16(v); }
};
template <>
struct Narrow<__half> {
  static __device__ __half from(float v) { return __float2half_rn(v); }
  static __device__ __half from(double v) { return __double2half(v); }
};

// Towards zero; beyond the range its ends, NaN is 0.
template <>
struct Narrow<uint8_t> {
  static __device__ uint8_t from(float v) { return static_cast<uint8_t>(min(__float2uint_rz(v), 255u)); }
  static __device__ uint8_t from(double v) { return static_cast<uint8_t>(min(__double2uint_rz(v), 255u)); }
};

template <class S, class D, int V>
__global__ void convert_kernel(const __grid_constant__ Layout<2> layout, const S* x, D* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= layout.count) return;
  int64_t offset[2];
  layout.offsets(i, offset);
  const Pack<S, V> in = load_pack<V>(x + offset[0]);
  Pack<D, V> out;
#pragma unroll
  for (int v = 0; v < V; ++v) out.v[v] = Narrow<D>::from(static_cast<Wide<S>>(in.v[v]));
  store_pack(y + offset[1], out);
}

template <class S, class D>
void convert(const Tensor& x, const Tensor& y) {
  CudaStream& stream = stream_for(y);
  const auto layout = layout_of<2>(x.shape(), {x.strides(), y.strides()});
  constexpr int kWide = 4;
  const auto run = [&]<int V>() {
    const auto vectors = layout.in_vectors(V);
    convert_kernel<S, D, V>
        <<<blocks_for("copy", vectors.count, kThreads), kThreads, 0, stream.handle()>>>(vectors, x.data<S>(), y.data<D>());
  };
  if (layout.walks(0, x.raw(), kWide, sizeof(S)) && layout.walks(1, y.raw(), kWide, sizeof(D))) run.template operator()<kWide>();
  else run.template operator()<1>();
  stream.enqueued("copy", {.bytes = traffic({&x, &y})});
}

template <class S>
void convert_from(const Tensor& x, const Tensor& y) {
  switch (y.dtype()) {
    case DType::F32: return convert<S, float>(x, y);
    case DType::F64: return convert<S, double>(x, y);
    case DType::F16: return convert<S, __half>(x, y);
    case DType::BF16: return convert<S, Bf16>(x, y);
    case DType::I32: return convert<S, int32_t>(x, y);
    case DType::U8: return convert<S, uint8_t>(x, y);
    default: refuse_dtype("copy into", y.dtype());
  }
}

// Blocks are dequantised to what the kernel writes; any other dtype takes one more step.
void unpack(const Tensor& x, const Tensor& y) {
  if (y.is_contiguous() && (y.dtype() == DType::F32 || y.dtype() == DType::BF16)) return dequantise(x, y);
  const Tensor plain = Tensor::like(y, DType::F32, y.shape());
  dequantise(x, plain);
  copy({plain, y});
}

}  // namespace

void copy(const CopyArgs& args) {
  const Tensor &x = args.x, &y = args.y;
  if (y.numel() == 0) return;
  if (x.dtype() == y.dtype()) return move(x, y);
  if (is_block_type(x.dtype())) return unpack(x, y);
  switch (x.dtype()) {
    case DType::F32: return convert_from<float>(x, y);
    case DType::F64: return convert_from<double>(x, y);
    case DType::F16: return convert_from<__half>(x, y);
    case DType::BF16: return convert_from<Bf16>(x, y);
    case DType::I32: return convert_from<int32_t>(x, y);
    case DType::I64: return convert_from<int64_t>(x, y);
    case DType::I8: return convert_from<int8_t>(x, y);
    case DType::U8:
    case DType::Bool: return convert_from<uint8_t>(x, y);
    case DType::F8_E4M3: return convert_from<__nv_fp8_e4m3>(x, y);
    case DType::F8_E5M2: return convert_from<__nv_fp8_e5m2>(x, y);
    default: refuse_dtype("copy of", x.dtype());
  }
}

// Nearest neighbour is a copy that reads every pixel four times: y [B, H, 2, W, 2, C] from x with two axes of stride 0.
void upsample(const UpsampleArgs& args) {
  const Shape& s = args.x.shape();
  const Shape twice{s[0], s[1], 2, s[2], 2, s[3]};
  copy({args.x.reshaped({s[0], s[1], 1, s[2], 1, s[3]}).expanded(twice), args.y.reshaped(twice)});
}

}  // namespace flux2::cuda
