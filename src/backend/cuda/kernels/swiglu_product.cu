#include <cuda_runtime.h>

#include <algorithm>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/parts.h"
#include "backend/cuda/kernels/tensor_map.h"

// y = silu(x · gateᵀ) · (x · upᵀ) in one kernel for sm_90a. Gate and up are never stored: each block multiplies with the same
// 128 rows of both, so the two factors of an output meet in one thread's registers.
//
// A block is a producer warp, which keeps the copy engine busy, and two warpgroups that multiply. Two blocks form a cluster:
// they work on neighbouring rows of x with the same weights, of which each fetches one half for both.
namespace flux2::cuda {

namespace {

constexpr int kRows = 128, kColumns = 128, kDepth = 64;  // of x, of y and of a slice of the sum
constexpr int kCluster = 2, kConsumers = 2, kStages = 4;
constexpr int kThreads = 128 * (1 + kConsumers);
constexpr int kRowBytes = kDepth * 2;  // what the 128-byte swizzle wants
constexpr uint32_t kInputBytes = kRows * kRowBytes, kWeightBytes = 2 * kColumns * kRowBytes;
constexpr uint32_t kStageBytes = kInputBytes + kWeightBytes;
constexpr uint32_t kHalfBytes = 64 * 64 * 2,
                   kOutputBytes = kConsumers * 2 * kHalfBytes;  // a warpgroup's 64 rows, 64 columns a half
constexpr uint32_t kBarrierBytes = 2 * kStages * 8;
constexpr uint32_t kSharedBytes = kStages * kStageBytes + kOutputBytes + kBarrierBytes + 1024;  // and room to align

// Tiles in the order in which clusters take them: bands of rows narrow enough to stay in the cache while the weights pass.
struct Tiles {
  int pairs, columns, band;  // two blocks' rows, one block's columns, pairs in a band

  __device__ int count() const { return pairs * columns; }
  __device__ void find(int tile, int& pair, int& column) const {
    const int first = tile / (band * columns) * band, within = tile - first * columns;
    const int height = min(band, pairs - first);
    pair = first + within % height;
    column = within / height;
  }
};

struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void advance() {
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
};

struct Shared {
  uint32_t stages, output, full, empty;
  __device__ explicit Shared(const void* memory) {
    stages = (hopper::shared_address(memory) + 1023) / 1024 * 1024;
    output = stages + kStages * kStageBytes;
    full = output + kOutputBytes;
    empty = full + kStages * 8;
  }
  __device__ uint32_t input(int stage) const { return stages + stage * kStageBytes; }
  __device__ uint32_t weight(int stage) const { return input(stage) + kInputBytes; }
  __device__ uint32_t is_full(int stage) const { return full + stage * 8; }
  __device__ uint32_t is_empty(int stage) const { return empty + stage * 8; }
};

__device__ void produce(const Shared& shared, const CUtensorMap& x, const CUtensorMap& w, const Tiles& tiles, int slices,
                        int hidden) {
  const auto rank = static_cast<int>(hopper::cluster_rank());
  Ring ring;
  for (int tile = blockIdx.x / kCluster; tile < tiles.count(); tile += gridDim.x / kCluster) {
    int pair, column;
    tiles.find(tile, pair, column);
    for (int slice = 0; slice < slices; ++slice, ring.advance()) {
      hopper::barrier_wait(shared.is_empty(ring.stage), ring.phase ^ 1);
      const uint32_t full = shared.is_full(ring.stage);
      hopper::barrier_expect(full, kStageBytes);
      hopper::load_box(shared.input(ring.stage), x, full, slice * kDepth, (pair * kCluster + rank) * kRows);
      // Block 0 fetches the gates, block 1 the ups.
      hopper::load_box_for(0b11, shared.weight(ring.stage) + rank * (kWeightBytes / 2), w, full, slice * kDepth,
                           rank * hidden + column * kColumns);
    }
  }
}

// The tensor cores wait while it is computed: approximate, without denormals, which BF16 hardly sees.
__device__ float fast_swiglu(float gate, float up) {
  float power, inverse;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(gate * -1.4426950408889634f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(1.0f + power));
  return gate * inverse * up;
}

__device__ uint32_t swiglu_pair(float gate0, float up0, float gate1, float up1) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(fast_swiglu(gate0, up0), fast_swiglu(gate1, up1));
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ void consume(const Shared& shared, const CUtensorMap& y, const Tiles& tiles, int slices, int consumer) {
  const int thread = threadIdx.x % 128, warp = thread / 32, lane = thread % 32;
  const uint32_t output = shared.output + consumer * 2 * kHalfBytes;
  // Where this lane's row of an 8×8 matrix goes: rows alternate with the matrix's number, columns with its second bit.
  const int row = warp * 16 + lane % 16, first_chunk = lane / 16;
  Ring ring;
  float sums[128];
  for (int tile = blockIdx.x / kCluster; tile < tiles.count(); tile += gridDim.x / kCluster) {
    int pair, column, last = 0;
    tiles.find(tile, pair, column);
    for (int slice = 0; slice < slices; ++slice, ring.advance()) {
      hopper::barrier_wait(shared.is_full(ring.stage), ring.phase);
      const uint64_t a = hopper::swizzled_matrix(shared.input(ring.stage) + consumer * 64 * kRowBytes);
      const uint64_t b = hopper::swizzled_matrix(shared.weight(ring.stage));
      hopper::products_begin();
#pragma unroll
      for (int k = 0; k < kDepth / 16; ++k)  // 16 elements are 32 bytes, 2 units of the descriptor
        hopper::multiply_64x256x16(sums, a + 2 * k, b + 2 * k, slice > 0 || k > 0);
      hopper::products_commit();
      // The slice before is done when this one alone is under way; its memory is free in both blocks of the cluster.
      hopper::products_wait<1>();
      if (slice > 0 && thread < kCluster) hopper::barrier_arrive(shared.is_empty(last), thread);
      last = ring.stage;
    }
    hopper::products_wait<0>();
    if (thread < kCluster) hopper::barrier_arrive(shared.is_empty(last), thread);

    if (thread == 0) hopper::stores_have_read();
    hopper::warpgroup_barrier(1 + consumer);
#pragma unroll
    for (int j = 0; j < kColumns / 8; j += 2) {  // sums[4·j …] are gates, sums[64 + 4·j …] their ups
      uint32_t packed[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = 4 * j + 2 * i;
        packed[i] = swiglu_pair(sums[at], sums[64 + at], sums[at + 1], sums[64 + at + 1]);
      }
      const int chunk = j % 8 + first_chunk;
      hopper::store_matrices(output + j / 8 * kHalfBytes + row * kRowBytes + ((chunk ^ row % 8) * 16), packed[0], packed[1],
                             packed[2], packed[3]);
    }
    hopper::publish_shared();
    hopper::warpgroup_barrier(1 + consumer);
    if (thread == 0) {
      const int first_row = (pair * kCluster + static_cast<int>(hopper::cluster_rank())) * kRows + consumer * 64;
      for (int half = 0; half < 2; ++half)
        hopper::store_box(y, output + half * kHalfBytes, column * kColumns + half * 64, first_row);
      hopper::stores_commit();
    }
  }
  if (thread == 0) hopper::stores_have_read();
}

__global__ void __cluster_dims__(kCluster, 1, 1) __launch_bounds__(kThreads, 1)
    swiglu_product_kernel(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                          const __grid_constant__ CUtensorMap y, const Tiles tiles, int slices, int hidden) {
  extern __shared__ uint8_t memory[];
  const Shared shared(memory);
  if (threadIdx.x == 0) {
    hopper::prefetch_map(x);
    hopper::prefetch_map(w);
    hopper::prefetch_map(y);
    for (int stage = 0; stage < kStages; ++stage) {
      hopper::barrier_init(shared.is_full(stage), 1);
      hopper::barrier_init(shared.is_empty(stage), kConsumers * kCluster);
    }
    hopper::barrier_init_done();
  }
  hopper::cluster_sync();
  const int group = threadIdx.x / 128;
  if (group == 0) {
    hopper::give_registers<40>();
    if (threadIdx.x == 0) produce(shared, x, w, tiles, slices, hidden);
    __syncwarp();
  } else {
    hopper::take_registers<232>();
    consume(shared, y, tiles, slices, group - 1);
  }
  hopper::cluster_sync();  // the other block may still be sending here
}

Tiles tiles_of(const SwigluProductArgs& args) {
  constexpr int64_t kBandBytes = int64_t{24} << 20;  // of x; about half of the cache (10 and 60 MB were no faster)
  Tiles tiles{};
  tiles.pairs = static_cast<int>(ceil_div(args.x.dim(0), kCluster * kRows));
  tiles.columns = static_cast<int>(ceil_div(args.y.dim(1), kColumns));
  const int64_t bands = std::min<int64_t>(ceil_div(args.x.numel() * 2, kBandBytes), tiles.pairs);
  tiles.band = static_cast<int>(ceil_div(tiles.pairs, bands));
  return tiles;
}

}  // namespace

bool swiglu_product_fits(const SwigluProductArgs& args) {
  return is_walkable(args.x) && is_walkable(args.w) && is_walkable(args.y) && is_hopper();
}

bool swiglu_product_pays(const SwigluProductArgs& args) {
  const Tiles tiles = tiles_of(args);
  const int clusters = multiprocessors() / kCluster, work = tiles.pairs * tiles.columns;
  return 10 * work >= 9 * ceil_div(work, clusters) * clusters;
}

void swiglu_product(const SwigluProductArgs& args) {
  const Tensor &x = args.x, &w = args.w, &y = args.y;
  CudaStream& stream = stream_for(y);
  const int64_t rows = x.dim(0), inner = x.dim(1), hidden = y.dim(1);
  const Tiles tiles = tiles_of(args);
  const int clusters = std::min(multiprocessors() / kCluster, tiles.pairs * tiles.columns);
  const auto slices = static_cast<int>(ceil_div(inner, kDepth));
  check_cuda(cudaFuncSetAttribute(swiglu_product_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes),
             "swiglu product");
  swiglu_product_kernel<<<clusters * kCluster, kThreads, kSharedBytes, stream.handle()>>>(
      tensor_map(x, kDepth, kRows), tensor_map(w, kDepth, kColumns), tensor_map(y, 64, 64), tiles, slices,
      static_cast<int>(hidden));
  stream.enqueued("linear_swiglu",
                  {.flop = 4.0 * static_cast<double>(rows) * static_cast<double>(hidden) * static_cast<double>(inner),
                   .bytes = traffic({&x, &w, &y}),
                   .rows = rows,
                   .columns = 2 * hidden,
                   .inner = inner});
}

}  // namespace flux2::cuda
