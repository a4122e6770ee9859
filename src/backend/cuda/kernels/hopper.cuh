#pragma once

#include <cuda.h>

#include <cstdint>

// The instructions of sm_90a behind plain names: barriers that count bytes, the bulk copy engine, products by a warpgroup.
// Addresses of shared memory are 32-bit numbers, as the instructions take them.
namespace flux2::cuda::hopper {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// --- clusters: blocks that see each other's shared memory

__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// --- barriers in shared memory: a phase ends when the arrivals and the bytes that were announced are complete

__device__ inline void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ inline void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void barrier_expect(uint32_t barrier, uint32_t bytes) {  // arrives, too
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Arrives at the barrier of the same place in the cluster's block `rank`. What it releases was read by the tensor cores and is
// written by the copy engine, which the barrier alone orders: asking for a release to the whole cluster would cost a fence of
// the whole GPU, and a quarter of the product's speed.
__device__ inline void barrier_arrive(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
__device__ inline void barrier_arrive(uint32_t barrier) {  // of this block
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ inline void barrier_wait(uint32_t barrier, uint32_t phase) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:\n}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}

// --- the copy engine: boxes of a matrix described by a tensor map, columns before rows

__device__ inline void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(reinterpret_cast<uint64_t>(&map)) : "memory");
}
__device__ inline void load_box(uint32_t to, const CUtensorMap& map, uint32_t barrier, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];" ::"r"(to),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(barrier), "r"(column), "r"(row)
      : "memory");
}
// The same into the blocks of the cluster whose bits are set, each told by its own barrier.
__device__ inline void load_box_for(uint16_t blocks, uint32_t to, const CUtensorMap& map, uint32_t barrier, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(reinterpret_cast<uint64_t>(&map)), "r"(barrier), "r"(column), "r"(row), "h"(blocks)
      : "memory");
}
__device__ inline void store_box(const CUtensorMap& map, uint32_t from, int column, int row) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(reinterpret_cast<uint64_t>(&map)),
      "r"(from), "r"(column), "r"(row)
      : "memory");
}
// Contiguous bytes: multiples of 16, from and to multiples of 16.
__device__ inline void load_bytes(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}
__device__ inline void store_bytes(void* to, uint32_t from, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(from), "r"(bytes) : "memory");
}
__device__ inline void stores_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
__device__ inline void stores_have_read() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
// What ordinary stores wrote becomes visible to the copy engine.
__device__ inline void publish_shared() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// --- a warpgroup: 128 threads

template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
__device__ inline void warpgroup_barrier(int id) { asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory"); }

// Whether any of the warpgroup's threads says so.
__device__ inline bool warpgroup_any(int id, bool mine) {
  int any;
  asm volatile(
      "{\n.reg .pred mine, any;\n"
      "setp.ne.b32 mine, %1, 0;\n"
      "bar.red.or.pred any, %2, 128, mine;\n"
      "selp.b32 %0, 1, 0, any;\n}"
      : "=r"(any)
      : "r"(static_cast<int>(mine)), "r"(id)
      : "memory");
  return any != 0;
}

// Four 8×8 matrices of 16-bit elements from the registers of a warp; lane i names the row i % 8 of matrix i / 8.
__device__ inline void store_matrices(uint32_t address, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(a), "r"(b), "r"(c), "r"(d)
               : "memory");
}

// A matrix of 16-bit elements whose rows of kRowBytes lie one behind the other in the copy engine's swizzle of that many bytes.
// The product's sum runs along the rows, or down the columns where the instruction takes the operand transposed.
template <int kRowBytes = 128>
__device__ inline uint64_t swizzled_matrix(uint32_t address) {
  static_assert(kRowBytes == 32 || kRowBytes == 64 || kRowBytes == 128);
  constexpr uint64_t kSwizzle = kRowBytes == 128 ? 1 : kRowBytes == 64 ? 2 : 3;
  return static_cast<uint64_t>((address & 0x3ffff) >> 4) | uint64_t{1} << 16 | uint64_t{8 * kRowBytes >> 4} << 32 |
         kSwizzle << 62;
}

__device__ inline void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void products_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int kPending>
__device__ inline void products_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

#define FLUX2_OUT8(d, i) \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define FLUX2_OUT32(d, i) FLUX2_OUT8(d, i), FLUX2_OUT8(d, i + 8), FLUX2_OUT8(d, i + 16), FLUX2_OUT8(d, i + 24)

// d[64, 256] (+)= a[64, 16] · b[256, 16]ᵀ in BF16, summed in F32. A thread holds, of rows 16 · (warp % 4) + lane / 4 and 8 below
// it, two neighbouring columns out of every eight: d[4 · j + {0, 1}] and d[4 · j + {2, 3}] are columns 8 · j + 2 · (lane % 4) +
// {0, 1}.
__device__ inline void multiply_64x256x16(float (&d)[128], uint64_t a, uint64_t b, bool add) {
  asm volatile(
      "{\n.reg .pred add;\nsetp.ne.b32 add, %130, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {"
      "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31,"
      "%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,"
      "%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,"
      "%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,"
      "%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127}, %128, %129, add, 1, 1, 0, 0;\n}"
      : FLUX2_OUT32(d, 0), FLUX2_OUT32(d, 32), FLUX2_OUT32(d, 64), FLUX2_OUT32(d, 96)
      : "l"(a), "l"(b), "r"(static_cast<int>(add)));
}

// d[64, kColumns] += a · b in BF16, summed in F32; d as above. b is [16, kColumns] with its columns side by side in memory. a is
// [64, 16], or the transposed of a [16, 64] in memory.
template <int kColumns, bool kTransposedA>
__device__ inline void multiply_add_64x16(float (&d)[kColumns / 2], uint64_t a, uint64_t b) {
  static_assert(kColumns == 16 || kColumns == 32 || kColumns == 64);
  if constexpr (kColumns == 16)
    asm volatile("wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0,%1,%2,%3,%4,%5,%6,%7}, %8, %9, 1, 1, 1, %10, 1;"
                 : FLUX2_OUT8(d, 0)
                 : "l"(a), "l"(b), "n"(static_cast<int>(kTransposedA)));
  else if constexpr (kColumns == 32)
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15}, %16, %17, 1, 1, 1, %18, 1;"
        : FLUX2_OUT8(d, 0), FLUX2_OUT8(d, 8)
        : "l"(a), "l"(b), "n"(static_cast<int>(kTransposedA)));
  else
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31}, "
        "%32, %33, 1, 1, 1, %34, 1;"
        : FLUX2_OUT32(d, 0)
        : "l"(a), "l"(b), "n"(static_cast<int>(kTransposedA)));
}

#undef FLUX2_OUT32
#undef FLUX2_OUT8

}  // namespace flux2::cuda::hopper
