#include <cuda_runtime.h>

#include <algorithm>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/hopper.cuh"
#include "backend/cuda/kernels/parts.h"
#include "backend/cuda/kernels/tensor_map.h"

// du = dy · up and dup = dyᵀ · inner in one kernel for sm_90a that reads dy once: dy is far larger than all the rest, and both
// products take as long as reading it.
//
// A block owns a strip of columns of dy and walks down a range of its rows. A warp keeps the copy engine busy; two warpgroups
// multiply, each with half of the strip's columns. It keeps their rows of dup in registers to the end; the two add their du tile
// by tile. What blocks compute of the same values is stored in F32 and added by a second kernel, always in the same order.
namespace flux2::cuda {

namespace {

constexpr int kGroups = 2, kThreads = 128 * (1 + kGroups);
constexpr int kRows = 64;                                 // of a tile: what one product of a warpgroup has
constexpr int kBox = 64;                                  // columns that lie together in shared memory
constexpr int kBoxes = 4, kBlockColumns = kBoxes * kBox;  // of a stage
constexpr uint32_t kBoxBytes = kRows * kBox * 2, kGradientBytes = kBoxes * kBoxBytes;

// For adapters of a rank: as many columns as the registers of two warpgroups can hold sums for.
template <int kRank>
struct Plan {
  static constexpr int kColumnBlocks = kRank == 64 ? 2 : 4, kColumns = kColumnBlocks * kBlockColumns;  // of a strip
  static constexpr int kOwnBlocks = kColumnBlocks / kGroups;  // of a warpgroup: every second one
  static constexpr int kStages = kRank == 64 ? 3 : 4;
  static constexpr int kRankBytes = kRank * 2;
  static constexpr uint32_t kInnerBytes = kRows * kRankBytes, kStageBytes = kGradientBytes + kInnerBytes;
  static constexpr uint32_t kUpBytes = kColumns * kRankBytes, kBarrierBytes = (2 * kStages + 1) * 8;
  static constexpr uint32_t kHandoverBytes = kRows * kRank * 4;  // du of one warpgroup for the other
  static constexpr uint32_t kSharedBytes = kStages * kStageBytes + kUpBytes + 2 * kHandoverBytes + kBarrierBytes + 1024;
};

// Which part of dy a block reads.
struct Part {
  int first_column, first_tile, end_tile;
};

struct Work {
  int rows, columns;  // of dy
  int strips, splits;
  float* du_parts;   // [strips, rows, rank]
  float* dup_parts;  // [splits, columns, rank]

  template <int kRank>
  __device__ Part part() const {
    const int tiles = (rows + kRows - 1) / kRows, strip = blockIdx.x % strips, split = blockIdx.x / strips;
    const auto tile_of = [&](int s) { return static_cast<int>(static_cast<int64_t>(tiles) * s / splits); };
    return {strip * Plan<kRank>::kColumns, tile_of(split), tile_of(split + 1)};
  }
};

template <int kRank>
struct Shared {
  using P = Plan<kRank>;
  uint32_t stages, up, full, empty, up_full;
  float* handover;  // two of them, so that one can be written while the other is read
  __device__ explicit Shared(uint8_t* memory) {
    const uint32_t begin = hopper::shared_address(memory);
    stages = (begin + 1023) / 1024 * 1024;
    up = stages + P::kStages * P::kStageBytes;
    handover = reinterpret_cast<float*>(memory + (up + P::kUpBytes - begin));
    full = up + P::kUpBytes + 2 * P::kHandoverBytes;
    empty = full + P::kStages * 8;
    up_full = empty + P::kStages * 8;
  }
  __device__ uint32_t gradient(int stage) const { return stages + stage * P::kStageBytes; }
  __device__ uint32_t inner(int stage) const { return gradient(stage) + kGradientBytes; }
  __device__ uint32_t is_full(int stage) const { return full + stage * 8; }
  __device__ uint32_t is_empty(int stage) const { return empty + stage * 8; }
};

template <int kStages>
struct Ring {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void advance() {
    if (++stage == kStages) stage = 0, phase ^= 1;
  }
};

template <int kRank>
__device__ void produce(const Shared<kRank>& shared, const CUtensorMap& dy, const CUtensorMap& inner, const CUtensorMap& up,
                        const Part& part) {
  using P = Plan<kRank>;
  hopper::barrier_expect(shared.up_full, P::kUpBytes);
  for (int i = 0; i < P::kColumns; i += kBlockColumns)
    hopper::load_box(shared.up + i * P::kRankBytes, up, shared.up_full, 0, part.first_column + i);
  Ring<P::kStages> ring;
  for (int tile = part.first_tile; tile < part.end_tile; ++tile)
    for (int block = 0; block < P::kColumnBlocks; ++block, ring.advance()) {
      hopper::barrier_wait(shared.is_empty(ring.stage), ring.phase ^ 1);
      const uint32_t full = shared.is_full(ring.stage);
      hopper::barrier_expect(full, P::kStageBytes);
      hopper::load_box(shared.inner(ring.stage), inner, full, 0, tile * kRows);
      for (int box = 0; box < kBoxes; ++box)
        hopper::load_box(shared.gradient(ring.stage) + box * kBoxBytes, dy, full,
                         part.first_column + block * kBlockColumns + box * kBox, tile * kRows);
    }
}

__device__ void consumers_barrier() { asm volatile("bar.sync 1, %0;" ::"n"(128 * kGroups) : "memory"); }

// The sums of a warpgroup, 64 rows of kRank, into rows first … below `end` of a contiguous matrix.
template <int kRank>
__device__ void store_sums(float* to, int64_t first, int64_t end, const float (&sums)[kRank / 2]) {
  const int thread = threadIdx.x % 128, lane = thread % 32;
#pragma unroll
  for (int below = 0; below < 2; ++below) {
    const int64_t row = first + thread / 32 * 16 + lane / 4 + 8 * below;
    if (row >= end) continue;
#pragma unroll
    for (int j = 0; j < kRank / 8; ++j)
      *reinterpret_cast<float2*>(to + row * kRank + 8 * j + 2 * (lane % 4)) = {sums[4 * j + 2 * below],
                                                                               sums[4 * j + 2 * below + 1]};
  }
}

template <int kRank>
__device__ void consume(const Shared<kRank>& shared, const Work& work, const Part& part, int group) {
  using P = Plan<kRank>;
  const int thread = threadIdx.x % 128;
  float dup[P::kOwnBlocks][kBoxes][kRank / 2] = {};
  float* const du_part = work.du_parts + int64_t{part.first_column / P::kColumns} * work.rows * kRank;
  hopper::barrier_wait(shared.up_full, 0);
  Ring<P::kStages> ring;
  if (group == 1) ring.advance();
  for (int tile = part.first_tile; tile < part.end_tile; ++tile) {
    float du[kRank / 2] = {};
#pragma unroll
    for (int own = 0; own < P::kOwnBlocks; ++own) {
      hopper::barrier_wait(shared.is_full(ring.stage), ring.phase);
      const int block = own * kGroups + group;
      const uint64_t inner = hopper::swizzled_matrix<P::kRankBytes>(shared.inner(ring.stage));
      const uint64_t up = hopper::swizzled_matrix<P::kRankBytes>(shared.up + block * kBlockColumns * P::kRankBytes);
      hopper::products_begin();
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        const uint64_t dy = hopper::swizzled_matrix(shared.gradient(ring.stage) + box * kBoxBytes);
#pragma unroll
        for (int k = 0; k < kRows; k += 16)  // descriptors count 16 bytes
          hopper::multiply_add_64x16<kRank, true>(dup[own][box], dy + k * kBox * 2 / 16, inner + k * P::kRankBytes / 16);
#pragma unroll
        for (int k = 0; k < kBox; k += 16)
          hopper::multiply_add_64x16<kRank, false>(du, dy + k * 2 / 16, up + (box * kBox + k) * P::kRankBytes / 16);
      }
      hopper::products_commit();
      hopper::products_wait<0>();
      if (thread == 0) hopper::barrier_arrive(shared.is_empty(ring.stage), 0);
      for (int i = 0; i < kGroups; ++i) ring.advance();
    }
    float* const handover = shared.handover + tile % 2 * (kRows * kRank) + thread;
    if (group == 1) {
#pragma unroll
      for (int i = 0; i < kRank / 2; ++i) handover[128 * i] = du[i];
    }
    consumers_barrier();  // the one before it ended the reading of the memory that is written now
    if (group == 0) {
#pragma unroll
      for (int i = 0; i < kRank / 2; ++i) du[i] += handover[128 * i];
      store_sums<kRank>(du_part, int64_t{tile} * kRows, work.rows, du);
    }
  }
  float* const dup_part = work.dup_parts + static_cast<int64_t>(blockIdx.x / work.strips) * work.columns * kRank;
#pragma unroll
  for (int own = 0; own < P::kOwnBlocks; ++own)
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
      store_sums<kRank>(dup_part, part.first_column + (own * kGroups + group) * kBlockColumns + box * kBox, work.columns,
                        dup[own][box]);
}

template <int kRank>
__global__ void __launch_bounds__(kThreads, 1)
    adapter_gradient_kernel(const __grid_constant__ CUtensorMap dy, const __grid_constant__ CUtensorMap inner,
                            const __grid_constant__ CUtensorMap up, const Work work) {
  using P = Plan<kRank>;
  extern __shared__ uint8_t memory[];
  const Shared<kRank> shared(memory);
  if (threadIdx.x == 0) {
    hopper::prefetch_map(dy);
    hopper::prefetch_map(inner);
    hopper::prefetch_map(up);
    for (int stage = 0; stage < P::kStages; ++stage) {
      hopper::barrier_init(shared.is_full(stage), 1);
      hopper::barrier_init(shared.is_empty(stage), 1);
    }
    hopper::barrier_init(shared.up_full, 1);
    hopper::barrier_init_done();
  }
  __syncthreads();
  const Part part = work.part<kRank>();
  const int group = threadIdx.x / 128;
  if (group == 0) {
    hopper::give_registers<40>();
    if (threadIdx.x == 0) produce(shared, dy, inner, up, part);
    __syncwarp();
  } else {
    hopper::take_registers<232>();
    consume(shared, work, part, group - 1);
  }
}

// y = factor · Σ parts, four values a thread; the parts lie `count` values apart.
struct Sums {
  const float* parts;
  int64_t count;
  int number;
  float factor;

  __device__ Pack<float, 4> at(int64_t i) const {
    float total[4] = {};
#pragma unroll 4
    for (int part = 0; part < number; ++part) {
      const Pack<float, 4> more = load_pack<4>(parts + part * count + i);
#pragma unroll
      for (int v = 0; v < 4; ++v) total[v] += more.v[v];
    }
    Pack<float, 4> sum;
#pragma unroll
    for (int v = 0; v < 4; ++v) sum.v[v] = factor * total[v];
    return sum;
  }
};

constexpr int kSumThreads = 256;

template <class W>
__global__ void __launch_bounds__(kSumThreads) sum_parts_kernel(const Sums du_sums, Bf16* du, const Sums dup_sums, W* dup) {
  const auto write = []<class T>(T* to, const Pack<float, 4>& sum) {
    Pack<T, 4> out;
#pragma unroll
    for (int v = 0; v < 4; ++v) out.v[v] = from_float<T>(sum.v[v]);
    store_pack(to, out);
  };
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kSumThreads + threadIdx.x) * 4;
  if (i < du_sums.count) write(du + i, du_sums.at(i));
  else if (i - du_sums.count < dup_sums.count) write(dup + (i - du_sums.count), dup_sums.at(i - du_sums.count));
}

struct Division {
  int strips, splits;
};

Division division_of(const AdapterGradArgs& args) {
  const int64_t columns = args.inner.dim(1) == 64 ? Plan<64>::kColumns : Plan<32>::kColumns;
  const auto strips = static_cast<int>(ceil_div(args.dy.dim(1), columns)),
             tiles = static_cast<int>(ceil_div(args.dy.dim(0), kRows));
  return {strips, std::clamp(multiprocessors() / strips, 1, tiles)};
}

bool is_dense(const Tensor& t) { return t.is_contiguous() && is_aligned(t.raw(), 16); }

template <int kRank>
void launch(const AdapterGradArgs& args) {
  const Tensor &dy = args.dy, &inner = args.inner, &up = args.up;
  CudaStream& stream = stream_for(dy);
  const auto [strips, splits] = division_of(args);
  const Tensor du_parts = Tensor::like(dy, DType::F32, {strips, dy.dim(0), kRank});
  const Tensor dup_parts = Tensor::like(dy, DType::F32, {splits, dy.dim(1), kRank});
  const Work work{static_cast<int>(dy.dim(0)), static_cast<int>(dy.dim(1)), strips, splits,
                  du_parts.data<float>(),      dup_parts.data<float>()};
  constexpr uint32_t kSharedBytes = Plan<kRank>::kSharedBytes;
  check_cuda(cudaFuncSetAttribute(adapter_gradient_kernel<kRank>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  static_cast<int>(kSharedBytes)),
             "adapter gradient");
  adapter_gradient_kernel<kRank><<<strips * splits, kThreads, kSharedBytes, stream.handle()>>>(
      tensor_map(dy, kBox, kRows), tensor_map(inner, kRank, kRows), tensor_map(up, kRank, kBlockColumns), work);
  stream.enqueued("adapter_grad", {.flop = 4.0 * static_cast<double>(dy.numel()) * kRank,
                                   .bytes = traffic({&dy, &inner, &up, &du_parts, &dup_parts}),
                                   .rows = dy.dim(0),
                                   .columns = dy.dim(1),
                                   .inner = kRank});
  const Sums du_sums{du_parts.data<float>(), dy.dim(0) * kRank, strips, static_cast<float>(args.factor)};
  const Sums dup_sums{dup_parts.data<float>(), dy.dim(1) * kRank, splits, 1.0f};
  const unsigned blocks = blocks_for("adapter gradient", du_sums.count + dup_sums.count, 4 * kSumThreads);
  const auto sum = [&]<class W>(W* dup) {
    sum_parts_kernel<<<blocks, kSumThreads, 0, stream.handle()>>>(du_sums, args.du.data<Bf16>(), dup_sums, dup);
  };
  if (args.dup.dtype() == DType::F32) sum(args.dup.data<float>());
  else sum(args.dup.data<Bf16>());
  stream.enqueued("adapter_grad sums", {.bytes = traffic({&du_parts, &dup_parts, &args.du, &args.dup})});
}

}  // namespace

bool adapter_gradient_fits(const AdapterGradArgs& args) {
  const int64_t rank = args.inner.dim(1);
  const bool dtypes = args.inner.dtype() == DType::BF16 && args.up.dtype() == DType::BF16 && args.du.dtype() == DType::BF16 &&
                      (args.dup.dtype() == DType::F32 || args.dup.dtype() == DType::BF16);
  return (rank == 16 || rank == 32 || rank == 64) && dtypes && is_walkable(args.dy) && is_dense(args.inner) &&
         is_dense(args.up) && is_dense(args.du) && is_dense(args.dup) && is_hopper();
}

// What is stored between the two kernels, and read again, must be less than the second reading of dy that is saved.
bool adapter_gradient_pays(const AdapterGradArgs& args) {
  const auto [strips, splits] = division_of(args);
  const int64_t parts = (strips * args.dy.dim(0) + splits * args.dy.dim(1)) * args.inner.dim(1);
  return 2 * parts * static_cast<int64_t>(sizeof(float)) < args.dy.numel() * static_cast<int64_t>(sizeof(Bf16));
}

void adapter_gradient(const AdapterGradArgs& args) {
  switch (args.inner.dim(1)) {
    case 16: return launch<16>(args);
    case 32: return launch<32>(args);
    default: return launch<64>(args);
  }
}

}  // namespace flux2::cuda
