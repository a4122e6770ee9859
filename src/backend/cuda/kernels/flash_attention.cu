#include <cmath>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/parts.h"

// Attention without the score matrix: a block keeps 64 queries of one head in registers and walks over the keys 64 at a
// time, rescaling its running sums when a larger score turns up. Products run on the tensor cores (mma m16n8k16), scores,
// softmax and sums in F32. The next keys and values arrive in shared memory while the present ones are used.
namespace flux2::cuda {

namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kQueries = 16 * kWarps;  // 16 a warp
constexpr int kKeys = 64;

struct Strides {
  int64_t batch, token, head;  // in elements
};

struct FlashArguments {
  const Bf16 *q, *k, *v;
  Bf16* y;
  Strides q_stride, k_stride, v_stride, y_stride;
  const int32_t* key_mask;  // row b at b · keys
  float* log_sum;           // [B, H, S]
  int queries, keys, heads, shared_by, width;
  float scale_log2;    // scale · log2(e): exponentials are taken to base 2
  bool causal, pairs;  // pairs: y can be written two elements at a time
};

// --- Instructions ---

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// 16 bytes to shared memory in the background; zeros when !valid.
__device__ inline void copy_async(Bf16* to, const Bf16* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)), "l"(from), "r"(valid ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kPending groups of copies are under way.
template <int kPending>
__device__ inline void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Four 8×8 matrices; lane l gives the address of row l % 8 of matrix l / 8.
__device__ inline void load_matrices(uint32_t (&r)[4], const Bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&r)[4], const Bf16* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}

// c[16, 8] += a[16, 16] · b[16, 8]. With g = lane / 4 and t = lane % 4 a lane holds c at rows g and g + 8, columns 2t and 2t + 1.
__device__ inline void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline uint32_t pack_pair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

// --- Tiles ---

// Rows in shared memory are padded by 16 bytes, so that the eight rows of a matrix lie in different banks.
template <int D>
constexpr int kPitch = D + 8;

// 64 rows of a head, starting at token `first`, into shared memory; tokens past `tokens` and elements past `width` are zero.
template <int D>
__device__ inline void load_tile(Bf16* tile, const Bf16* head, int64_t token_stride, int first, int tokens, int width) {
  constexpr int kVectors = D / 8;
#pragma unroll
  for (int i = threadIdx.x; i < 64 * kVectors; i += kThreads) {
    const int row = i / kVectors, column = i % kVectors * 8;
    const bool valid = first + row < tokens && column < width;
    copy_async(tile + row * kPitch<D> + column, valid ? head + (first + row) * token_stride + column : head, valid);
  }
}

template <int D>
__global__ void __launch_bounds__(kThreads, 3) flash_kernel(const __grid_constant__ FlashArguments a) {
  extern __shared__ __align__(16) unsigned char memory[];
  constexpr int kTile = 64 * kPitch<D>;
  Bf16* const tiles = reinterpret_cast<Bf16*>(memory);  // stage s: keys at tile 2s, values at tile 2s + 1

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane / 4, pair = lane % 4;
  const int head = blockIdx.y, batch = blockIdx.z;
  const int first_query = blockIdx.x * kQueries;
  const Bf16* const q = a.q + batch * a.q_stride.batch + head * a.q_stride.head;
  const Bf16* const k = a.k + batch * a.k_stride.batch + head / a.shared_by * a.k_stride.head;
  const Bf16* const v = a.v + batch * a.v_stride.batch + head / a.shared_by * a.v_stride.head;
  const int32_t* const mask = a.key_mask ? a.key_mask + static_cast<int64_t>(batch) * a.keys : nullptr;

  const int earlier = a.keys - a.queries;  // keys of tokens before the first query
  const int visible = a.causal ? max(0, min(a.keys, first_query + kQueries + earlier)) : a.keys;
  const int steps = (visible + kKeys - 1) / kKeys;

  // Queries pass through the second stage's memory, which is not needed yet.
  load_tile<D>(tiles + 2 * kTile, q, a.q_stride.token, first_query, a.queries, a.width);
  load_tile<D>(tiles, k, a.k_stride.token, 0, a.keys, a.width);
  load_tile<D>(tiles + kTile, v, a.v_stride.token, 0, a.keys, a.width);
  commit_copies();
  wait_copies<0>();
  __syncthreads();
  uint32_t query[D / 16][4];
#pragma unroll
  for (int d = 0; d < D / 16; ++d)
    load_matrices(query[d], tiles + 2 * kTile + (warp * 16 + lane % 16) * kPitch<D> + d * 16 + lane / 16 * 8);
  __syncthreads();

  float out[D / 8][4] = {};
  float largest[2] = {-INFINITY, -INFINITY}, total[2] = {0.0f, 0.0f};  // rows group and group + 8; total of this lane's columns
  const int query_row = first_query + warp * 16 + group;

  for (int step = 0; step < steps; ++step) {
    const Bf16* const key_tile = tiles + step % 2 * 2 * kTile;
    const Bf16* const value_tile = key_tile + kTile;
    if (step + 1 < steps) {
      Bf16* const next = tiles + (step + 1) % 2 * 2 * kTile;
      load_tile<D>(next, k, a.k_stride.token, (step + 1) * kKeys, a.keys, a.width);
      load_tile<D>(next + kTile, v, a.v_stride.token, (step + 1) * kKeys, a.keys, a.width);
      commit_copies();
      wait_copies<1>();
    } else {
      wait_copies<0>();
    }
    __syncthreads();

    // scores[n] holds keys 8n … 8n + 7.
    float scores[kKeys / 8][4] = {};
#pragma unroll
    for (int d = 0; d < D / 16; ++d)
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        uint32_t b[4];
        load_matrices(b, key_tile + (n * 16 + lane / 16 * 8 + lane % 8) * kPitch<D> + d * 16 + lane / 8 % 2 * 8);
        multiply_add(scores[2 * n], query[d], b[0], b[1]);
        multiply_add(scores[2 * n + 1], query[d], b[2], b[3]);
      }

    const int first_key = step * kKeys;
    const bool whole = !mask && first_key + kKeys <= a.keys && (!a.causal || first_key + kKeys - 1 <= first_query + earlier);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[n][i] *= a.scale_log2;
        if (!whole) {
          const int key = first_key + n * 8 + pair * 2 + i % 2;
          const bool sees = key < a.keys && (!a.causal || key <= query_row + i / 2 * 8 + earlier) && (!mask || mask[key] != 0);
          if (!sees) scores[n][i] = -INFINITY;
        }
      }

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = largest[half];
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n) top = fmaxf(top, fmaxf(scores[n][2 * half], scores[n][2 * half + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const float base = top == -INFINITY ? 0.0f : top;  // a row that has seen nothing yet: exp2(−inf − 0) = 0
      const float shrink = exp2f(largest[half] - base);
      largest[half] = top;
      total[half] *= shrink;
#pragma unroll
      for (int d = 0; d < D / 8; ++d) {
        out[d][2 * half] *= shrink;
        out[d][2 * half + 1] *= shrink;
      }
#pragma unroll
      for (int n = 0; n < kKeys / 8; ++n)
#pragma unroll
        for (int i = 2 * half; i < 2 * half + 2; ++i) {
          scores[n][i] = exp2f(scores[n][i] - base);
          total[half] += scores[n][i];
        }
    }

    // The lanes that hold two neighbouring 16×8 results hold the 16×16 left operand of the next product.
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      const uint32_t weights[4] = {pack_pair(scores[2 * n][0], scores[2 * n][1]), pack_pair(scores[2 * n][2], scores[2 * n][3]),
                                   pack_pair(scores[2 * n + 1][0], scores[2 * n + 1][1]),
                                   pack_pair(scores[2 * n + 1][2], scores[2 * n + 1][3])};
#pragma unroll
      for (int d = 0; d < D / 16; ++d) {
        uint32_t b[4];
        load_matrices_transposed(b, value_tile + (n * 16 + lane % 16) * kPitch<D> + d * 16 + lane / 16 * 8);
        multiply_add(out[2 * d], weights, b[0], b[1]);
        multiply_add(out[2 * d + 1], weights, b[2], b[3]);
      }
    }
    __syncthreads();  // the next step overwrites this stage
  }

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    total[half] += __shfl_xor_sync(0xffffffffu, total[half], 1);
    total[half] += __shfl_xor_sync(0xffffffffu, total[half], 2);
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = query_row + 8 * half;
    if (row >= a.queries) continue;
    const float inverse = total[half] > 0 ? 1.0f / total[half] : 0.0f;
    Bf16* const y = a.y + batch * a.y_stride.batch + row * a.y_stride.token + head * a.y_stride.head;
#pragma unroll
    for (int d = 0; d < D / 8; ++d) {
      const int column = d * 8 + pair * 2;
      if (column >= a.width) continue;
      const __nv_bfloat162 value = __floats2bfloat162_rn(out[d][2 * half] * inverse, out[d][2 * half + 1] * inverse);
      if (a.pairs) {
        *reinterpret_cast<__nv_bfloat162*>(y + column) = value;
      } else {
        y[column] = value.x;
        y[column + 1] = value.y;
      }
    }
    if (a.log_sum && pair == 0)
      a.log_sum[(static_cast<int64_t>(batch) * a.heads + head) * a.queries + row] =
          (largest[half] + log2f(total[half])) * 0.69314718055994531f;
  }
}

template <int D>
void launch(const FlashArguments& a, int64_t batches, CudaStream& stream) {
  constexpr int kSharedBytes = 4 * 64 * kPitch<D> * static_cast<int>(sizeof(Bf16));
  check_cuda(cudaFuncSetAttribute(flash_kernel<D>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes), "attention");
  const dim3 grid(blocks_for("attention", a.queries, kQueries), static_cast<unsigned>(a.heads), static_cast<unsigned>(batches));
  flash_kernel<D><<<grid, kThreads, kSharedBytes, stream.handle()>>>(a);
  stream.enqueued("attention");
}

Strides strides_of(const Tensor& t) { return {t.stride(0), t.stride(1), t.stride(2)}; }

bool strides_divide(const Tensor& t, int64_t n) {
  for (int axis = 0; axis < 3; ++axis)
    if (t.dim(axis) > 1 && t.stride(axis) % n != 0) return false;
  return true;
}

// Rows that 16-byte copies can read.
Tensor readable(const Tensor& t) {
  const bool fits = t.stride(3) == 1 && is_aligned(t.raw(), 16) && strides_divide(t, 8);
  return fits ? t : t.cloned();
}

}  // namespace

bool flash_attention_fits(const AttentionArgs& args) {
  return args.q.dtype() == DType::BF16 && args.q.dim(3) <= 128 && args.q.dim(3) % 8 == 0 && args.q.dim(0) <= 65535 &&
         args.q.dim(2) <= 65535;
}

void flash_attention(const AttentionArgs& args) {
  CudaStream& stream = stream_for(args.y);
  const Tensor q = readable(args.q), k = readable(args.k), v = readable(args.v);
  Tensor mask;
  if (args.key_mask) mask = args.key_mask->contiguous();
  FlashArguments a{};
  a.q = q.data<Bf16>();
  a.k = k.data<Bf16>();
  a.v = v.data<Bf16>();
  a.y = args.y.data<Bf16>();
  a.q_stride = strides_of(q);
  a.k_stride = strides_of(k);
  a.v_stride = strides_of(v);
  a.y_stride = strides_of(args.y);
  a.key_mask = mask.defined() ? mask.data<int32_t>() : nullptr;
  a.log_sum = args.log_sum ? args.log_sum->data<float>() : nullptr;
  a.queries = static_cast<int>(q.dim(1));
  a.keys = static_cast<int>(k.dim(1));
  a.heads = static_cast<int>(q.dim(2));
  a.shared_by = a.heads / static_cast<int>(k.dim(2));
  a.width = static_cast<int>(q.dim(3));
  a.scale_log2 = args.scale * 1.4426950408889634f;
  a.causal = args.causal;
  a.pairs = is_aligned(args.y.raw(), 4) && strides_divide(args.y, 2);
  if (a.width <= 64) launch<64>(a, q.dim(0), stream);
  else launch<128>(a, q.dim(0), stream);
}

}  // namespace flux2::cuda
