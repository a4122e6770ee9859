#include <cmath>

#include "backend/cuda/kernels/kernels.h"
#include "backend/cuda/kernels/quantised_blocks.cuh"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

// Element c of row r of a table, whatever it is stored as. `stride` is in stored units: elements or blocks.
template <class S>
struct Table {
  const S* data;
  int64_t stride;
  __device__ float at(int64_t r, int c) const { return static_cast<float>(data[r * stride + c]); }
};
template <class Blocks>
struct BlockTable {
  const uint8_t* data;
  int64_t stride;
  __device__ float at(int64_t r, int c) const {
    float value[1];
    Blocks::load(data + (r * stride + c / Blocks::kElements) * Blocks::kBytes, c % Blocks::kElements, value);
    return value[0];
  }
};

// A block per token. A token that no table has gives NaN, which is noticed, rather than someone else's memory.
template <class Rows, class T>
__global__ void embedding_kernel(const int32_t* ids, const Rows table, int64_t table_rows, T* y, int64_t y_stride, int columns) {
  const int64_t id = ids[blockIdx.x];
  const bool known = id >= 0 && id < table_rows;
  for (int c = threadIdx.x; c < columns; c += kThreads)
    y[blockIdx.x * y_stride + c] = from_float<T>(known ? table.at(id, c) : NAN);
}

template <class Rows>
void launch(const Tensor& ids, const Rows& rows, const Tensor& table, const Tensor& y) {
  CudaStream& stream = stream_for(y);
  with_float("embedding", y.dtype(), [&]<class T>(T) {
    embedding_kernel<Rows, T><<<blocks_for("embedding", y.dim(0), 1), kThreads, 0, stream.handle()>>>(
        ids.data<int32_t>(), rows, table.dim(0), y.data<T>(), y.stride(0), static_cast<int>(y.dim(1)));
  });
  stream.enqueued("embedding");
}

// Rows of the table's own type are moved 16 bytes at a time: element by element, 2-byte types reach half the bandwidth at best.
__global__ void moved_rows_kernel(const int32_t* ids, const uint4* table, int64_t table_stride, int64_t table_rows, uint4* y,
                                  int64_t y_stride, int vectors) {
  const int64_t id = ids[blockIdx.x];
  const bool known = id >= 0 && id < table_rows;
  const uint4 nan = {~0u, ~0u, ~0u, ~0u};  // in every float type
  for (int c = threadIdx.x; c < vectors; c += kThreads) y[blockIdx.x * y_stride + c] = known ? table[id * table_stride + c] : nan;
}

int64_t elements_per_vector(const Tensor& t) { return static_cast<int64_t>(sizeof(uint4)) / bytes_for(t.dtype(), 1); }

bool moves_whole_vectors(const Tensor& t, const Tensor& y) {
  const int64_t n = elements_per_vector(t);
  const auto aligned = [&](const Tensor& x) {
    return reinterpret_cast<uintptr_t>(x.raw()) % sizeof(uint4) == 0 && x.stride(0) % n == 0 && x.stride(1) == 1;
  };
  return t.dtype() == y.dtype() && t.dim(1) % n == 0 && aligned(t) && aligned(y);
}

void move_rows(const Tensor& ids, const Tensor& t, const Tensor& y) {
  const int64_t n = elements_per_vector(t);
  CudaStream& stream = stream_for(y);
  moved_rows_kernel<<<blocks_for("embedding", y.dim(0), 1), kThreads, 0, stream.handle()>>>(
      ids.data<int32_t>(), static_cast<const uint4*>(t.raw()), t.stride(0) / n, t.dim(0), static_cast<uint4*>(y.raw()),
      y.stride(0) / n, static_cast<int>(t.dim(1) / n));
  stream.enqueued("embedding");
}

template <class S>
Table<S> plain(const Tensor& t) {
  return {t.data<S>(), t.stride(0)};
}

}  // namespace

void embedding(const EmbeddingArgs& args) {
  if (args.y.numel() == 0) return;
  const Tensor& t = args.table;
  const Tensor ids = args.ids.contiguous();
  const Tensor y = args.y.reshaped({ids.numel(), t.dim(1)});
  if (is_float(t.dtype()) && moves_whole_vectors(t, y)) return move_rows(ids, t, y);
  switch (t.dtype()) {
    case DType::F32: return launch(ids, plain<float>(t), t, y);
    case DType::BF16: return launch(ids, plain<Bf16>(t), t, y);
    case DType::F16: return launch(ids, plain<__half>(t), t, y);
    case DType::F8_E4M3: return launch(ids, plain<__nv_fp8_e4m3>(t), t, y);
    case DType::F8_E5M2: return launch(ids, plain<__nv_fp8_e5m2>(t), t, y);
    default:
      with_blocks("embedding", t.dtype(), [&]<class B>(B) {
        launch(ids, BlockTable<B>{t.data<uint8_t>(), t.dim(1) / B::kElements}, t, y);
      });
  }
}

}  // namespace flux2::cuda
