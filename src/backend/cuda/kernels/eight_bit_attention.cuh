#pragma once

#include "backend/cuda/kernels/eight_bit_softmax.cuh"

// The attention itself, see eight_bit_plan.cuh. One warp of a block loads tiles, two warpgroups compute 64 queries each.
namespace flux2::cuda::attention8 {

constexpr int kThreads = 128 * (1 + kGroups);
constexpr int kStages = 3;                    // tiles of keys, and of values, in shared memory
constexpr int kKeyStage = kTileBytes + 1024;  // in shared memory, where the swizzle counts from 1024
constexpr int kSharedBytes = 1024 + kGroups * kQueryBytes + kStages * (kKeyStage + kTileBytes) + 256;

struct Segment {
  int tile, first, count;  // tiles of keys
  int slot;                // of the two that a block has for parts; −1: the whole tile
};

// The segments of a block, in the order in which it computes them.
struct Segments {
  const Plan& plan;
  int begin, at, end, tile;

  __device__ explicit Segments(const Plan& p)
      : plan(p), begin(share(blockIdx.x)), at(begin), end(share(blockIdx.x + 1)), tile(blockIdx.x) {}
  __device__ int share(int block) const {
    return static_cast<int>(int64_t{block} * plan.divided_tiles * plan.key_tiles / plan.blocks);
  }
  // The block that computes this step of the divided tiles.
  __device__ int block_of(int step) const {
    const int64_t all = int64_t{plan.divided_tiles} * plan.key_tiles;
    int block = static_cast<int>(int64_t{step} * plan.blocks / all);
    while (share(block + 1) <= step) ++block;
    while (share(block) > step) --block;
    return block;
  }
  __device__ bool next(Segment& s) {
    const int whole = plan.tiles - plan.divided_tiles;
    if (at < end) {
      s.first = at % plan.key_tiles;
      s.count = min(plan.key_tiles - s.first, end - at);
      s.tile = whole + at / plan.key_tiles;
      s.slot = s.count == plan.key_tiles ? -1 : at == begin ? 0 : 1;
      at += s.count;
      return true;
    }
    if (tile >= whole) return false;
    s = {tile, 0, plan.key_tiles, -1};
    tile += plan.blocks;
    return true;
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
  uint32_t queries, keys, values, barriers;
  __device__ explicit Shared(const void* memory) {
    queries = (hopper::shared_address(memory) + 1023) / 1024 * 1024;
    keys = queries + kGroups * kQueryBytes;
    values = keys + kStages * kKeyStage;
    barriers = values + kStages * kTileBytes;
  }
  __device__ uint32_t query(int group) const { return queries + group * kQueryBytes; }
  __device__ uint32_t key(int stage) const { return keys + stage * kKeyStage; }
  __device__ uint32_t value(int stage) const { return values + stage * kTileBytes; }
  __device__ uint32_t query_full(int group) const { return barriers + group * 8; }
  __device__ uint32_t query_empty(int group) const { return barriers + (kGroups + group) * 8; }
  __device__ uint32_t key_full(int stage) const { return barriers + (2 * kGroups + stage) * 8; }
  __device__ uint32_t key_empty(int stage) const { return barriers + (2 * kGroups + kStages + stage) * 8; }
  __device__ uint32_t value_full(int stage) const { return barriers + (2 * kGroups + 2 * kStages + stage) * 8; }
  __device__ uint32_t value_empty(int stage) const { return barriers + (2 * kGroups + 3 * kStages + stage) * 8; }
};

__device__ inline void produce(const Shared& shared, const Plan& plan, const Workspace& w) {
  Segments segments(plan);
  Ring keys, values;
  uint32_t query_phase = 1;
  const auto load_values = [&](const uint8_t* from) {
    hopper::barrier_wait(shared.value_empty(values.stage), values.phase ^ 1);
    hopper::barrier_expect(shared.value_full(values.stage), kTileBytes);
    hopper::load_bytes(shared.value(values.stage), from, kTileBytes, shared.value_full(values.stage));
    values.advance();
  };
  for (Segment s; segments.next(s); query_phase ^= 1) {
    const int head = s.tile / plan.query_tiles;  // of all batches, whose heads are divided alike
    const size_t first = static_cast<size_t>(head / plan.shared_by) * plan.key_tiles + s.first;
    const uint8_t *const k = w.k + first * kKeyStride, *const v = w.v + first * kTileBytes;
    for (int group = 0; group < kGroups; ++group) {
      hopper::barrier_wait(shared.query_empty(group), query_phase);
      hopper::barrier_expect(shared.query_full(group), kQueryBytes);
      hopper::load_bytes(shared.query(group), w.q + (static_cast<size_t>(s.tile) * kGroups + group) * kQueryBytes, kQueryBytes,
                         shared.query_full(group));
    }
    for (int i = 0; i < s.count; ++i) {
      hopper::barrier_wait(shared.key_empty(keys.stage), keys.phase ^ 1);
      hopper::barrier_expect(shared.key_full(keys.stage), kKeyStride);
      hopper::load_bytes(shared.key(keys.stage), k + static_cast<size_t>(i) * kKeyStride, kKeyStride,
                         shared.key_full(keys.stage));
      keys.advance();
      if (i > 0) load_values(v + static_cast<size_t>(i - 1) * kTileBytes);
    }
    load_values(v + static_cast<size_t>(s.count - 1) * kTileBytes);
  }
}

// The place of a part among all of them.
__device__ inline size_t part_of(int block, int slot, int group) {
  return static_cast<size_t>((block * 2 + slot) * kGroups + group);
}

__device__ inline void store_part(const float (&sums)[kWidth / 2], const Rows& rows, const Segment& segment, const Workspace& w,
                                  int group, int thread) {
  const size_t own = part_of(blockIdx.x, segment.slot, group);
  float4* const out = w.parts + own * 16 * 128 + thread;
#pragma unroll
  for (int j = 0; j < 16; ++j) out[j * 128] = {sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]};
  w.part_rows[own * 128 + thread] = {rows.largest[0], rows.largest[1], rows.total[0], rows.total[1]};
}

// The blocks that compute parts of a tile.
struct Sharers {
  int divided, first, last;  // the tile's number among the divided ones; blocks
  __device__ Sharers(const Segments& segments, const Segment& segment) {
    const Plan& plan = segments.plan;
    divided = segment.tile - (plan.tiles - plan.divided_tiles);
    first = segments.block_of(divided * plan.key_tiles);
    last = segments.block_of((divided + 1) * plan.key_tiles - 1);
  }
};

// Whether all other parts of the tile are stored. Nobody waits for them: the block that stores the last one adds them up. It sets
// the counter back to 0.
__device__ inline bool is_last_part(const Segments& segments, const Segment& segment, const Workspace& w, int group, int thread) {
  const Sharers sharers(segments, segment);
  int* const arrived = w.arrived + sharers.divided * kGroups + group;
  __threadfence();
  hopper::warpgroup_barrier(3 + group);
  int before = 0;
  if (thread == 0) before = atomicAdd(arrived, 1);
  const bool is_last = hopper::warpgroup_any(3 + group, thread == 0 && before == sharers.last - sharers.first);
  if (is_last && thread == 0) *arrived = 0;
  if (is_last) __threadfence();
  return is_last;
}

// In the order of the blocks, whoever adds them up: the result has the same bits every time.
__device__ inline void add_parts(float (&sums)[kWidth / 2], Rows& rows, const Segments& segments, const Segment& segment,
                                 const Workspace& w, int group, int thread) {
  const Sharers sharers(segments, segment);
  const auto place = [&](int block) {
    const bool begins_here = segments.share(block) >= sharers.divided * segments.plan.key_tiles;
    return part_of(block, begins_here ? 0 : 1, group);
  };
  rows.largest[0] = rows.largest[1] = -INFINITY;
  for (int block = sharers.first; block <= sharers.last; ++block) {
    const float4 part = __ldcg(w.part_rows + place(block) * 128 + thread);
    rows.largest[0] = fmaxf(rows.largest[0], part.x);
    rows.largest[1] = fmaxf(rows.largest[1], part.y);
  }
  rows.total[0] = rows.total[1] = 0;
#pragma unroll
  for (int j = 0; j < kWidth / 2; ++j) sums[j] = 0;
  for (int block = sharers.first; block <= sharers.last; ++block) {
    const float4 part = __ldcg(w.part_rows + place(block) * 128 + thread);
    const float weight[2] = {power_of_two(part.x - rows.largest[0]), power_of_two(part.y - rows.largest[1])};
    rows.total[0] = fmaf(part.z, weight[0], rows.total[0]);
    rows.total[1] = fmaf(part.w, weight[1], rows.total[1]);
    const float4* const in = w.parts + place(block) * 16 * 128 + thread;
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      const float4 four = __ldcg(in + j * 128);
      sums[4 * j] = fmaf(four.x, weight[0], sums[4 * j]);
      sums[4 * j + 1] = fmaf(four.y, weight[0], sums[4 * j + 1]);
      sums[4 * j + 2] = fmaf(four.z, weight[1], sums[4 * j + 2]);
      sums[4 * j + 3] = fmaf(four.w, weight[1], sums[4 * j + 3]);
    }
  }
}

__device__ inline void write_rows(const float (&sums)[kWidth / 2], const Rows& rows, const Segment& segment, const Plan& plan,
                                  const Target& y, int group, int row, int pair) {
  const int head = segment.tile / plan.query_tiles, first_row = segment.tile % plan.query_tiles * kTileRows + group * kRows;
  __nv_bfloat16* const out = y.data + head / plan.heads * y.stride.batch + head % plan.heads * y.stride.head + pair;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int at = first_row + row + 8 * r;
    if (at >= plan.queries) continue;
    const float inverse = 1.0f / rows.total[r];
#pragma unroll
    for (int j = 0; j < kWidth / 8; ++j)
      *reinterpret_cast<__nv_bfloat162*>(out + at * y.stride.token + j * 8) =
          __floats2bfloat162_rn(sums[4 * j + 2 * r] * inverse, sums[4 * j + 2 * r + 1] * inverse);
  }
}

__device__ inline void consume(const Shared& shared, const Plan& plan, const Workspace& w, const Target& y, int group) {
  const int thread = threadIdx.x % 128, row = thread / 32 * 16 + thread % 32 / 4, pair = thread % 4 * 2;
  float s[kKeys / 2], sums[kWidth / 2];
  uint32_t p[kKeys / 8];
  Ring keys, values;
  uint32_t query_phase = 0;
  // The warpgroup whose turn it is issues its products; the other computes exponentials meanwhile.
  const auto wait_for_turn = [&] { asm volatile("bar.sync %0, 256;" ::"r"(1 + group) : "memory"); };
  const auto pass_turn = [&] { asm volatile("bar.arrive %0, 256;" ::"r"(2 - group) : "memory"); };
  if (group == 1) pass_turn();

  const uint64_t a = hopper::swizzled_matrix(shared.query(group));
  const auto multiply_keys = [&] {
    const uint64_t b = hopper::swizzled_matrix(shared.key(keys.stage));
#pragma unroll
    for (int i = 0; i < kWidth / 32; ++i) hopper::multiply_e4m3(s, a + 2 * i, b + 2 * i, i > 0);
    hopper::products_commit();
  };
  const auto multiply_values = [&](bool add) {
#pragma unroll
    for (int i = 0; i < kKeys / 32; ++i) {
      const uint64_t b = hopper::swizzled_matrix<kSlab>(shared.value(values.stage) + i * 32 / kSlab * (kSlab * kWidth));
      hopper::multiply_e4m3(sums, p + 4 * i, b + i % (kSlab / 32) * 2, i > 0 || add);
    }
    hopper::products_commit();
  };
  const auto release = [&](uint32_t barrier) {  // each warp for itself: all its threads have read
    __syncwarp();
    if (thread % 32 == 0) hopper::barrier_arrive(barrier);
  };

  Segments segments(plan);
  for (Segment segment; segments.next(segment); query_phase ^= 1) {
    Rows rows{};
    const float* const q_scales = w.q_scales + static_cast<size_t>(segment.tile) * kTileRows + group * kRows + row;
#pragma unroll
    for (int r = 0; r < 2; ++r) rows.query_scale[r] = q_scales[8 * r], rows.largest[r] = -INFINITY;
    const auto softmax = [&](int i, const auto& sums_are_done) {
      if ((segment.first + i + 1) * kKeys > plan.keys) {
        const int visible = plan.keys - (segment.first + i) * kKeys;
#pragma unroll
        for (int j = 0; j < kKeys / 2; ++j)
          if (j / 4 * 8 + pair + j % 2 >= visible) s[j] = -INFINITY;
      }
      const TileScales tile = scales_at(shared.key(keys.stage) + kTileBytes);
      release(shared.key_empty(keys.stage));
      keys.advance();
      constexpr int kMiddle = kKeys / 16;  // half of the exponentials are computed before waiting for the sums
      compare(s, rows, tile);
      exponentiate<0, kMiddle>(s, rows);
      settle(s);
      sums_are_done();
      exponentiate<kMiddle, kKeys / 8>(s, rows);
      round_to_e4m3(s, p);
      add_totals(rows, tile);
    };

    hopper::barrier_wait(shared.query_full(group), query_phase);
    hopper::barrier_wait(shared.key_full(keys.stage), keys.phase);
    wait_for_turn();
    hopper::products_begin();
    multiply_keys();
    pass_turn();
    hopper::products_wait<0>();
    settle(s);
    softmax(0, [] {});
    for (int i = 1; i < segment.count; ++i) {
      hopper::barrier_wait(shared.key_full(keys.stage), keys.phase);
      hopper::barrier_wait(shared.value_full(values.stage), values.phase);
      wait_for_turn();
      settle(s);
      settle(p);
      settle(sums);
      hopper::products_begin();
      multiply_keys();
      multiply_values(i > 1);
      pass_turn();
      hopper::products_wait<1>();
      settle(s);
      softmax(i, [&] {
        // Two waits, so that the compiler keeps them behind the exponentials before.
        if (__any_sync(0xffffffffu, rows.shrink[0] != 1.0f || rows.shrink[1] != 1.0f)) {
          hopper::products_wait<0>();
          settle(sums);
#pragma unroll
          for (int j = 0; j < kWidth / 2; ++j) sums[j] *= rows.shrink[j / 2 % 2];
        } else {
          hopper::products_wait<0>();
          settle(sums);
        }
        settle(p);
        release(shared.value_empty(values.stage));
        values.advance();
      });
    }
    release(shared.query_empty(group));
    hopper::barrier_wait(shared.value_full(values.stage), values.phase);
    settle(p);
    settle(sums);
    hopper::products_begin();
    multiply_values(segment.count > 1);
    hopper::products_wait<0>();
    settle(sums);
    settle(p);
    release(shared.value_empty(values.stage));
    values.advance();

#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows.total[r] += __shfl_xor_sync(0xffffffffu, rows.total[r], 1);
      rows.total[r] += __shfl_xor_sync(0xffffffffu, rows.total[r], 2);
    }
    if (segment.slot >= 0) {
      store_part(sums, rows, segment, w, group, thread);
      if (!is_last_part(segments, segment, w, group, thread)) continue;
      add_parts(sums, rows, segments, segment, w, group, thread);
    }
    write_rows(sums, rows, segment, plan, y, group, row, pair);
  }
}

__global__ void __launch_bounds__(kThreads, 1)
    attention_kernel(const __grid_constant__ Plan plan, const __grid_constant__ Workspace w, const __grid_constant__ Target y) {
  extern __shared__ uint8_t memory[];
  const Shared shared(memory);
  if (threadIdx.x == 0) {
    for (int group = 0; group < kGroups; ++group) {
      hopper::barrier_init(shared.query_full(group), 1);
      hopper::barrier_init(shared.query_empty(group), kWarps);
    }
    for (int stage = 0; stage < kStages; ++stage) {
      hopper::barrier_init(shared.key_full(stage), 1);
      hopper::barrier_init(shared.key_empty(stage), kGroups * kWarps);
      hopper::barrier_init(shared.value_full(stage), 1);
      hopper::barrier_init(shared.value_empty(stage), kGroups * kWarps);
    }
    hopper::barrier_init_done();
  }
  __syncthreads();
  const int group = threadIdx.x / 128;
  if (group == 0) {
    hopper::give_registers<40>();
    if (threadIdx.x == 0) produce(shared, plan, w);
  } else {
    hopper::take_registers<232>();
    consume(shared, plan, w, y, group - 1);
  }
}

}  // namespace flux2::cuda::attention8
