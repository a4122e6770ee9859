#include "backend/cuda/kernels/eight_bits.cuh"
#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/parts.h"

// What the gradient dX = dY · W of a product with an e4m3 weight needs besides the product itself: dY in e4m3, and Wᵀ.
namespace flux2::cuda {

namespace {

constexpr int kPackWidth = 8;  // elements a thread reads at once

// dY · s, where s are the scales of W's rows: they belong to the index that the product sums over, so they cannot be applied to
// the result. Values that no gradient should have are taken as 0, so that 448 / largest stays finite.
struct ScaledGradient {
  static constexpr float kNothing = 1e-30f;

  const Bf16* x;
  int64_t stride;
  const float* factors;
  int columns;

  __device__ Pack<Bf16, kPackWidth> value(const Pack<Bf16, kPackWidth>& in, int column) const {
    Pack<float, 4> factor[2] = {load_pack<4>(factors + column), load_pack<4>(factors + column + 4)};
    const auto scaled = [](float v, float f) {
      const float y = v * f;
      return fabsf(y) < kNothing ? 0.0f : y;  // NaN stays
    };
    Pack<Bf16, kPackWidth> out;
#pragma unroll
    for (int v = 0; v < kPackWidth; v += 2) {
      const float2 pair = unpacked(pair_at(in, v));
      const float* const f = &factor[v / 4].v[v % 4];
      *reinterpret_cast<uint32_t*>(&out.v[v]) = packed(scaled(pair.x, f[0]), scaled(pair.y, f[1]));
    }
    return out;
  }
};

// A block holds a row in registers, kChunks vectors a thread.
template <int kThreads, int kChunks>
__global__ void __launch_bounds__(kThreads) gradient_in_registers(const ScaledGradient source, E4m3* y, float* scales) {
  const int64_t row = blockIdx.x;
  const auto column_of = [](int chunk) { return (chunk * kThreads + static_cast<int>(threadIdx.x)) * kPackWidth; };
  Pack<Bf16, kPackWidth> values[kChunks];
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk)
    values[chunk] = load_pack<kPackWidth>(source.x + row * source.stride + min(column_of(chunk), source.columns - kPackWidth));
  Largest largest;
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk) {
    if (column_of(chunk) >= source.columns) continue;
    values[chunk] = source.value(values[chunk], column_of(chunk));
    largest.see(values[chunk]);
  }
  const RowScale<E4m3> scale(largest.among<kThreads>());
  if (threadIdx.x == 0) scales[row] = scale.factor;
#pragma unroll
  for (int chunk = 0; chunk < kChunks; ++chunk)
    if (column_of(chunk) < source.columns) store_pack(y + row * source.columns + column_of(chunk), scale.round(values[chunk]));
}

// Rows of any length, read twice.
constexpr int kRowThreads = 512;
__global__ void __launch_bounds__(kRowThreads) gradient_by_walking(const ScaledGradient source, E4m3* y, float* scales) {
  const int64_t row = blockIdx.x;
  const auto pack_at = [&](int column) {
    return source.value(load_pack<kPackWidth>(source.x + row * source.stride + column), column);
  };
  Largest largest;
  for (int c = threadIdx.x * kPackWidth; c < source.columns; c += kRowThreads * kPackWidth) largest.see(pack_at(c));
  const RowScale<E4m3> scale(largest.among<kRowThreads>());
  if (threadIdx.x == 0) scales[row] = scale.factor;
  for (int c = threadIdx.x * kPackWidth; c < source.columns; c += kRowThreads * kPackWidth)
    store_pack(y + row * source.columns + c, scale.round(pack_at(c)));
}

// A tile of 128 × 128 bytes. A thread reads 16 bytes of 4 rows and writes them as 16 words of 4 bytes, each a piece of a row of
// the result; the words of one such row lie in a row of `tile`, turned so that neither side meets in a bank.
constexpr int kTile = 128, kTileThreads = 256;
__global__ void __launch_bounds__(kTileThreads) transpose_bytes_kernel(const uint8_t* x, uint8_t* y, int rows, int columns) {
  __shared__ uint32_t tile[kTile][kTile / 4];
  const int first_row = blockIdx.y * kTile, first_column = blockIdx.x * kTile;
  const int part = threadIdx.x % 8, four = threadIdx.x / 8;  // 16 bytes of a row, 4 rows
  {
    const int row = first_row + 4 * four, column = first_column + 16 * part;
    uint4 in[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      in[i] = row + i < rows && column < columns
                  ? *reinterpret_cast<const uint4*>(x + static_cast<int64_t>(row + i) * columns + column)
                  : uint4{};
#pragma unroll
    for (int quarter = 0; quarter < 4; ++quarter) {
      const auto word = [&](int i) { return quarter == 0 ? in[i].x : quarter == 1 ? in[i].y : quarter == 2 ? in[i].z : in[i].w; };
      const uint32_t a = word(0), b = word(1), c = word(2), d = word(3);
      const uint32_t ab_low = __byte_perm(a, b, 0x5140), ab_high = __byte_perm(a, b, 0x7362);  // a0 b0 a1 b1, a2 b2 a3 b3
      const uint32_t cd_low = __byte_perm(c, d, 0x5140), cd_high = __byte_perm(c, d, 0x7362);
      uint32_t* const to = &tile[16 * part + 4 * quarter][(four + 4 * part) % 32];
      to[0] = __byte_perm(ab_low, cd_low, 0x5410);
      to[kTile / 4] = __byte_perm(ab_low, cd_low, 0x7632);
      to[2 * (kTile / 4)] = __byte_perm(ab_high, cd_high, 0x5410);
      to[3 * (kTile / 4)] = __byte_perm(ab_high, cd_high, 0x7632);
    }
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int column = 32 * i + four;                    // of x within the tile: a row of y
    const int at = (4 * part + 4 * (column / 16)) % 32;  // its words, 4 of which are 16 bytes
    const uint4 out = *reinterpret_cast<const uint4*>(&tile[column][at]);
    const int y_row = first_column + column, y_column = first_row + 16 * part;
    if (y_row < columns && y_column < rows) *reinterpret_cast<uint4*>(y + static_cast<int64_t>(y_row) * rows + y_column) = out;
  }
}

}  // namespace

void quantise_gradient(const QuantiseGradientArgs& args) {
  CudaStream& stream = stream_for(args.y);
  const auto columns = static_cast<int>(args.dy.dim(1));
  const ScaledGradient source{.x = args.dy.data<Bf16>(),
                              .stride = args.dy.dim(0) == 1 ? args.dy.dim(1) : args.dy.stride(0),
                              .factors = args.factors.data<float>(),
                              .columns = columns};
  const unsigned rows = blocks_for("quantise_gradient", args.dy.dim(0), 1);
  E4m3* const out = args.y.data<E4m3>();
  float* const scales = args.y.scales().data<float>();
  const int packs = columns / kPackWidth;
  const auto run = [&]<int kThreads, int kChunks>() {
    gradient_in_registers<kThreads, kChunks><<<rows, kThreads, 0, stream.handle()>>>(source, out, scales);
  };
  if (packs <= 128 * 4) run.template operator()<128, 4>();
  else if (packs <= 384 * 3) run.template operator()<384, 3>();
  else if (packs <= 512 * 3) run.template operator()<512, 3>();
  else if (packs <= 384 * 6) run.template operator()<384, 6>();
  else if (packs <= 384 * 9) run.template operator()<384, 9>();
  else if (packs <= 512 * 9) run.template operator()<512, 9>();
  else gradient_by_walking<<<rows, kRowThreads, 0, stream.handle()>>>(source, out, scales);
  stream.enqueued("quantise_gradient", {.bytes = traffic({&args.dy, &args.y})});
}

void transpose_bytes(const Tensor& x, const Tensor& y) {
  CudaStream& stream = stream_for(y);
  const dim3 tiles(blocks_for("transpose_bytes", x.dim(1), kTile), blocks_for("transpose_bytes", x.dim(0), kTile));
  transpose_bytes_kernel<<<tiles, kTileThreads, 0, stream.handle()>>>(x.data<uint8_t>(), y.data<uint8_t>(),
                                                                      static_cast<int>(x.dim(0)), static_cast<int>(x.dim(1)));
  stream.enqueued("transpose_bytes", {.bytes = traffic({&x, &y})});
}

}  // namespace flux2::cuda
