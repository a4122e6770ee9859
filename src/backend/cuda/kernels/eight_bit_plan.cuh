#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

// Attention in e4m3 for sm_90a, heads of 128. A first kernel (eight_bit_operands.cuh) writes queries, keys and values in 8 bits,
// in tiles that lie in memory as the tensor cores want them, so that a tile arrives as one copy of contiguous bytes. A second
// kernel (eight_bit_attention.cuh) computes
//   S = q kᵀ,  P = 2^(S · factors − M),  y = Σ P v / Σ P
// with S, P and the sums in registers. Here: the tiles, the division of the work, and the memory between the two kernels.
//
// Scales: a query has one of its own. A tile of keys has one, and so has a tile of values. The scale of the values is part of the
// exponent: P is multiplied by it before it is rounded to e4m3, so that the sum over tiles needs no other factor, and is divided
// by it in the row's sum.
namespace flux2::cuda::attention8 {

constexpr int kWidth = 128;  // of a head: a row of bytes is one row of the 128-byte swizzle
constexpr int kRows = 64;    // queries of a warpgroup
constexpr int kGroups = 2;   // warpgroups that compute
constexpr int kWarps = 4;    // of a warpgroup
constexpr int kTileRows = kRows * kGroups;
constexpr int kQueryBytes = kRows * kWidth;
constexpr int kKeys = 192;  // of a tile: as many as the registers can hold scores for
constexpr int kSlab = 64;   // keys in a row of transposed values; a tile of values is one slab after the other, a row per channel
constexpr int kTileBytes = kKeys * kWidth;
constexpr int kTrailerBytes = 16;  // TileScales behind the keys of a tile
constexpr int kKeyStride = kTileBytes + kTrailerBytes;
static_assert(kKeys % kSlab == 0);
constexpr float kLargest = 448.0f;   // e4m3
constexpr float kSmallest = 1e-12f;  // the largest magnitude that a scale is made for: smaller ones would underflow in products

struct TileScales {
  float key, value_log2, inverse_value, unused;
};

struct Strides {
  int64_t batch, token, head;  // in elements
};

// How the work is divided. A tile is 128 queries of a head. A block of the grid computes one tile after another. The tiles that
// would not fill a last round come first, divided among all blocks by keys: the block that finishes the last part of such a tile
// adds the parts up.
struct Plan {
  int queries, keys, heads, shared_by, batches;
  int query_tiles, key_tiles;  // of a head
  int tiles, divided_tiles;    // all of them; the last ones, which are divided
  int blocks;
};

struct Workspace {
  uint8_t *q, *k, *v;  // [B·H, query_tiles · 2] of kQueryBytes; [B·G, key_tiles] of kKeyStride; [B·G, key_tiles] of kTileBytes
  float* q_scales;     // [B·H, query_tiles · 128], with the scale of attention and log2(e)
  float4* parts;       // [blocks, 2, kGroups, 16, 128]: sums of a part of a tile as threads hold them
  float4* part_rows;   // [blocks, 2, kGroups, 128]: largest and sum of their two rows
  int* arrived;        // [divided_tiles, kGroups]
};

inline Plan plan_of(int batches, int queries, int keys, int heads, int key_heads, int processors) {
  Plan p{};
  p.queries = queries, p.keys = keys, p.heads = heads, p.shared_by = heads / key_heads, p.batches = batches;
  p.query_tiles = (queries + kTileRows - 1) / kTileRows;
  p.key_tiles = (keys + kKeys - 1) / kKeys;
  p.tiles = batches * heads * p.query_tiles;
  const int64_t steps = int64_t{p.tiles} * p.key_tiles;
  constexpr int kFewestSteps = 4;  // for a block: a part must be worth adding up
  p.blocks = static_cast<int>(std::clamp<int64_t>(steps / kFewestSteps, 1, processors));
  p.divided_tiles = p.tiles % p.blocks;
  // A few tiles in many parts would be slow to add up: a whole round is divided with them.
  if (p.divided_tiles > 0 && 2 * p.divided_tiles < p.blocks && p.tiles > p.blocks) p.divided_tiles += p.blocks;
  return p;
}

// The bytes of the parts of the workspace, each from an address that is a multiple of 256.
struct WorkspaceBytes {
  size_t q, k, v, q_scales, parts, part_rows, arrived;
  explicit WorkspaceBytes(const Plan& p) {
    const auto round = [](size_t bytes) { return (bytes + 255) / 256 * 256; };
    const auto of = [](int64_t a, int64_t b) { return static_cast<size_t>(a) * static_cast<size_t>(b); };
    const size_t heads = of(p.batches, p.heads), key_heads = heads / static_cast<size_t>(p.shared_by);
    q = round(heads * of(p.query_tiles, kGroups * kQueryBytes));
    k = round(key_heads * of(p.key_tiles, kKeyStride));
    v = round(key_heads * of(p.key_tiles, kTileBytes));
    q_scales = round(heads * of(p.query_tiles, kTileRows * 4));
    parts = p.divided_tiles ? of(p.blocks, 2 * kGroups * 16 * 128 * 16) : 0;
    part_rows = p.divided_tiles ? of(p.blocks, 2 * kGroups * 128 * 16) : 0;
    arrived = round(of(p.divided_tiles, kGroups * 4));
  }
  size_t total() const { return q + k + v + q_scales + parts + part_rows + arrived; }
  Workspace at(void* memory) const {
    auto* p = static_cast<uint8_t*>(memory);
    Workspace w{};
    const auto take = [&](size_t bytes) {
      uint8_t* const part = p;
      p += bytes;
      return part;
    };
    w.q = take(q), w.k = take(k), w.v = take(v);
    w.q_scales = reinterpret_cast<float*>(take(q_scales));
    w.parts = reinterpret_cast<float4*>(take(parts));
    w.part_rows = reinterpret_cast<float4*>(take(part_rows));
    w.arrived = reinterpret_cast<int*>(take(arrived));
    return w;
  }
};

struct Source {
  const __nv_bfloat16* data;
  Strides stride;
};

struct Target {
  __nv_bfloat16* data;
  Strides stride;
};

}  // namespace flux2::cuda::attention8
