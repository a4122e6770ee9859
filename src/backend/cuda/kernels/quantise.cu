#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/to_e4m3.cuh"

// Activations in 8 bits for the product that follows: rows of a tensor, or of [x ‖ silu(gate) · up] while it is computed.
namespace flux2::cuda {

namespace {

constexpr int kWide = 8;  // elements a thread reads at once

// Row r holds `head` columns of x, then silu(gate) · up. Rounded to BF16 as if it had been stored in between.
struct Source {
  const Bf16 *x, *gate, *up;
  int64_t x_stride, gate_stride, up_stride;
  int head, columns;

  template <int V>
  __device__ Pack<Bf16, V> load(int64_t row, int column) const {
    if (column < head) return load_pack<V>(x + row * x_stride + column);
    const Pack<Bf16, V> g = load_pack<V>(gate + row * gate_stride + column - head);
    const Pack<Bf16, V> u = load_pack<V>(up + row * up_stride + column - head);
    Pack<Bf16, V> out;
#pragma unroll
    for (int v = 0; v < V; ++v) out.v[v] = from_float<Bf16>(silu(as_float(g.v[v])) * as_float(u.v[v]));
    return out;
  }
};

// A block holds a row in registers, kChunks vectors a thread.
template <int kThreads, int kChunks>
__global__ void __launch_bounds__(kThreads) quantise_in_registers(const Source source, E4m3* y, float* scales) {
  const int64_t row = blockIdx.x;
  Pack<Bf16, kWide> held[kChunks];
  float largest = 0;
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int column = (chunk * kThreads + static_cast<int>(threadIdx.x)) * kWide;
    if (column < source.columns) held[chunk] = source.load<kWide>(row, column);
  }
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int column = (chunk * kThreads + static_cast<int>(threadIdx.x)) * kWide;
    if (column < source.columns) largest = fmaxf(largest, largest_of(held[chunk]));
  }
  const E4m3Scale scale(block_max<kThreads>(largest));
  if (threadIdx.x == 0) scales[row] = scale.factor;
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    const int column = (chunk * kThreads + static_cast<int>(threadIdx.x)) * kWide;
    if (column < source.columns) store_pack(y + row * source.columns + column, scale.round(held[chunk]));
  }
}

// Any width and alignment: the row is read, and computed, twice.
constexpr int kWalkers = 256;
__global__ void __launch_bounds__(kWalkers) quantise_by_walking(const Source source, E4m3* y, float* scales) {
  const int64_t row = blockIdx.x;
  float largest = 0;
  for (int c = threadIdx.x; c < source.columns; c += kWalkers) largest = fmaxf(largest, largest_of(source.load<1>(row, c)));
  const E4m3Scale scale(block_max<kWalkers>(largest));
  if (threadIdx.x == 0) scales[row] = scale.factor;
  for (int c = threadIdx.x; c < source.columns; c += kWalkers)
    store_pack(y + row * source.columns + c, scale.round(source.load<1>(row, c)));
}

bool walks_in_vectors(const Tensor& t) {
  return t.dim(1) % kWide == 0 && (t.dim(0) == 1 || t.stride(0) % kWide == 0) && is_aligned(t.raw(), 16);
}

void launch(const char* op, const Source& source, const Tensor& y, bool vectors, double bytes) {
  if (y.numel() == 0) return;
  CudaStream& stream = stream_for(y);
  const unsigned rows = blocks_for(op, y.dim(0), 1);
  E4m3* const out = y.data<E4m3>();
  float* const scales = y.scales().data<float>();
  const int packs = source.columns / kWide;
  const auto run = [&]<int kThreads, int kChunks>() {
    quantise_in_registers<kThreads, kChunks><<<rows, kThreads, 0, stream.handle()>>>(source, out, scales);
  };
  if (!vectors || packs > 256 * 8) quantise_by_walking<<<rows, kWalkers, 0, stream.handle()>>>(source, out, scales);
  else if (packs <= 128 * 3) run.template operator()<128, 3>();
  else if (packs <= 128 * 4) run.template operator()<128, 4>();
  else if (packs <= 256 * 5) run.template operator()<256, 5>();
  else if (packs <= 256 * 6) run.template operator()<256, 6>();
  else run.template operator()<256, 8>();
  stream.enqueued(op, {.bytes = bytes});
}

void check_source(const char* op, const Tensor& t) {
  if (t.dtype() != DType::BF16) refuse_dtype(op, t.dtype());
}

}  // namespace

void quantise(const QuantiseArgs& args) {
  check_source("quantise", args.x);
  const auto columns = static_cast<int>(args.x.dim(1));
  const Source source{.x = args.x.data<Bf16>(),
                      .gate = nullptr,
                      .up = nullptr,
                      .x_stride = args.x.stride(0),
                      .gate_stride = 0,
                      .up_stride = 0,
                      .head = columns,
                      .columns = columns};
  launch("quantise", source, args.y, walks_in_vectors(args.x), traffic({&args.x, &args.y}));
}

void quantise_swiglu(const QuantiseSwigluArgs& args) {
  check_source("quantise_swiglu", args.gate);
  const int64_t head = args.x ? args.x->dim(1) : 0;
  const Source source{.x = args.x ? args.x->data<Bf16>() : nullptr,
                      .gate = args.gate.data<Bf16>(),
                      .up = args.up.data<Bf16>(),
                      .x_stride = args.x ? args.x->stride(0) : 0,
                      .gate_stride = args.gate.stride(0),
                      .up_stride = args.up.stride(0),
                      .head = static_cast<int>(head),
                      .columns = static_cast<int>(args.y.dim(1))};
  const bool vectors = walks_in_vectors(args.gate) && walks_in_vectors(args.up) && (!args.x || walks_in_vectors(*args.x));
  launch("quantise_swiglu", source, args.y, vectors,
         traffic({&args.gate, &args.up, &args.y}) + (args.x ? traffic({args.x}) : 0.0));
}

}  // namespace flux2::cuda
