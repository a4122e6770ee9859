#include "backend/cuda/kernels/eight_bits.cuh"
#include "backend/cuda/kernels/kernels.h"

// Activations in 8 bits for the product that follows: rows of a tensor, or of [x ‖ silu(gate) · up] while it is computed.
namespace flux2::cuda {

namespace {

constexpr int kWide = 8;  // elements a thread reads at once

// Row r holds `head` columns of x, then silu(gate) · up. Rounded to BF16 as if it had been stored in between.
struct Source {
  const Bf16 *x, *gate, *up;
  int64_t x_stride, gate_stride, up_stride;
  int head, columns;

  // Reading comes before computing, and without a branch (what is not wanted is read from where it does no harm): all of a
  // thread's reads are then under way together.
  template <int V>
  struct Read {
    Pack<Bf16, V> first, up;  // x or gate
  };
  template <int V>
  __device__ Read<V> read(int64_t row, int column) const {
    const int behind = column - head;
    const Bf16* const first = behind < 0 ? x + row * x_stride + column : gate + row * gate_stride + behind;
    return {load_pack<V>(first), load_pack<V>(behind < 0 ? first : up + row * up_stride + behind)};
  }
  template <int V>
  __device__ Pack<Bf16, V> value(const Read<V>& r, int column) const {
    if (column < head) return r.first;
    Pack<Bf16, V> out;
    if constexpr (V == 1) {
      out.v[0] = from_float<Bf16>(silu(as_float(r.first.v[0])) * as_float(r.up.v[0]));
    } else {
#pragma unroll
      for (int v = 0; v < V; v += 2) {
        const float2 g = unpacked(pair_at(r.first, v)), u = unpacked(pair_at(r.up, v));
        *reinterpret_cast<uint32_t*>(&out.v[v]) = packed(silu(g.x) * u.x, silu(g.y) * u.y);
      }
    }
    return out;
  }
};

// A block holds a row in registers, kChunks vectors a thread.
template <int kThreads, int kChunks, class Q>
__global__ void __launch_bounds__(kThreads) quantise_in_registers(const Source source, Q* y, float* scales) {
  const int64_t row = blockIdx.x;
  const auto column_of = [](int chunk) { return (chunk * kThreads + static_cast<int>(threadIdx.x)) * kWide; };
  Source::Read<kWide> reads[kChunks];
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk)
    reads[chunk] = source.read<kWide>(row, min(column_of(chunk), source.columns - kWide));
  Pack<Bf16, kWide> values[kChunks];
  Largest largest;
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    if (column_of(chunk) >= source.columns) continue;
    values[chunk] = source.value<kWide>(reads[chunk], column_of(chunk));
    largest.see(values[chunk]);
  }
  const RowScale<Q> scale(largest.among<kThreads>());
  if (threadIdx.x == 0) scales[row] = scale.factor;
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk)
    if (column_of(chunk) < source.columns) store_pack(y + row * source.columns + column_of(chunk), scale.round(values[chunk]));
}

// Any width and alignment: the row is read, and computed, twice.
constexpr int kWalkers = 256;
template <class Q>
__global__ void __launch_bounds__(kWalkers) quantise_by_walking(const Source source, Q* y, float* scales) {
  const int64_t row = blockIdx.x;
  const auto value = [&](int column) { return source.value<1>(source.read<1>(row, column), column); };
  Largest largest;
  for (int c = threadIdx.x; c < source.columns; c += kWalkers) largest.see(value(c));
  const RowScale<Q> scale(largest.among<kWalkers>());
  if (threadIdx.x == 0) scales[row] = scale.factor;
  for (int c = threadIdx.x; c < source.columns; c += kWalkers) store_pack(y + row * source.columns + c, scale.round(value(c)));
}

bool walks_in_vectors(const Tensor& t) {
  return t.dim(1) % kWide == 0 && (t.dim(0) == 1 || t.stride(0) % kWide == 0) && is_aligned(t.raw(), 16);
}

template <class Q>
void launch_as(const char* op, const Source& source, const Tensor& y, bool vectors) {
  CudaStream& stream = stream_for(y);
  const unsigned rows = blocks_for(op, y.dim(0), 1);
  Q* const out = y.data<Q>();
  float* const scales = y.scales().data<float>();
  const int packs = source.columns / kWide;
  const auto run = [&]<int kThreads, int kChunks>() {
    quantise_in_registers<kThreads, kChunks><<<rows, kThreads, 0, stream.handle()>>>(source, out, scales);
  };
  if (!vectors || packs > 512 * 4) quantise_by_walking<<<rows, kWalkers, 0, stream.handle()>>>(source, out, scales);
  else if (packs <= 128 * 3) run.template operator()<128, 3>();
  else if (packs <= 128 * 4) run.template operator()<128, 4>();
  else if (packs <= 384 * 3) run.template operator()<384, 3>();
  else if (packs <= 512 * 3) run.template operator()<512, 3>();
  else run.template operator()<512, 4>();
}

void launch(const char* op, const Source& source, const Tensor& y, bool vectors, double bytes) {
  if (y.numel() == 0) return;
  if (y.dtype() == DType::I8) launch_as<int8_t>(op, source, y, vectors);
  else launch_as<E4m3>(op, source, y, vectors);
  stream_for(y).enqueued(op, {.bytes = bytes});
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
