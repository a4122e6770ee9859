#include "backend/cuda/cuda_error.h"
#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/kernels.h"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kSlice = 512;     // tokens of a block
constexpr int kSegment = 1024;  // slices whose sums are added at a time
constexpr int32_t kFollows = -1;

// Tokens with one id often make up half of a batch (padding), so the sum of an id is taken slice by slice and then over the
// slices. No two blocks write one row, and the order of a sum is always the same.

// leaders[i]: the id of token i if it is the first with this id in its slice, otherwise kFollows. partial[i]: the leader's sum of
// dy over the slice. named[id]: whether any token has this id.
template <class T>
__global__ void __launch_bounds__(kThreads) slice_sums(const int32_t* ids, int tokens, const T* dy, int64_t table_rows,
                                                       int columns, int32_t* leaders, float* partial, uint8_t* named) {
  __shared__ int32_t all[kSlice];
  __shared__ bool leads[kSlice];
  const int begin = blockIdx.x * kSlice, count = min(kSlice, tokens - begin);
  for (int i = threadIdx.x; i < count; i += kThreads) all[i] = ids[begin + i];
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const int32_t id = all[i];
    bool first = id >= 0 && id < table_rows;
    for (int j = 0; j < i && first; ++j) first = all[j] != id;
    leads[i] = first;
    leaders[begin + i] = first ? id : kFollows;
    if (first) named[id] = 1;
  }
  __syncthreads();
  constexpr int kColumns = 4;  // of a lane at a time
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = warp; i < count; i += kWarps) {
    if (!leads[i]) continue;
    const int32_t id = all[i];
    for (int first = lane; first - lane < columns; first += 32 * kColumns) {
      float total[kColumns] = {};
      for (int group = i / 32 * 32; group < count; group += 32) {
        const int j = group + lane;
        unsigned matches = __ballot_sync(0xffffffffu, j < count && all[j] == id);
        for (; matches != 0; matches &= matches - 1) {
          const T* row = dy + static_cast<int64_t>(begin + group + __ffs(matches) - 1) * columns;
#pragma unroll
          for (int k = 0; k < kColumns; ++k)
            if (first + 32 * k < columns) total[k] += as_float(row[first + 32 * k]);
        }
      }
#pragma unroll
      for (int k = 0; k < kColumns; ++k)
        if (first + 32 * k < columns) partial[static_cast<int64_t>(begin + i) * columns + first + 32 * k] = total[k];
    }
  }
}

// Row blockIdx.x of the table plus the sums of its leaders. A slice has at most one leader of an id.
template <class D>
__global__ void __launch_bounds__(kThreads)
    add_slices(const int32_t* leaders, int tokens, const float* partial, const uint8_t* named, D* dtable, int columns) {
  if (!named[blockIdx.x]) return;
  __shared__ int32_t leader[kSegment];
  D* row = dtable + static_cast<int64_t>(blockIdx.x) * columns;
  for (int begin = 0; begin < tokens; begin += kSegment * kSlice) {
    const int end = min(tokens, begin + kSegment * kSlice), slices = (end - begin + kSlice - 1) / kSlice;
    __syncthreads();  // the segment before may still be read
    for (int s = threadIdx.x; s < slices; s += kThreads) leader[s] = kFollows;
    __syncthreads();
    for (int i = begin + threadIdx.x; i < end; i += kThreads)
      if (leaders[i] == static_cast<int32_t>(blockIdx.x)) leader[(i - begin) / kSlice] = i;
    __syncthreads();
    for (int c = threadIdx.x; c < columns; c += kThreads) {
      float total = as_float(row[c]);
      for (int s = 0; s < slices; ++s)
        if (leader[s] != kFollows) total += partial[static_cast<int64_t>(leader[s]) * columns + c];
      row[c] = from_float<D>(total);
    }
  }
}

}  // namespace

void embedding_grad(const EmbeddingGradArgs& args) {
  if (args.dy.numel() == 0 || args.dtable.numel() == 0) return;
  const Tensor ids = args.ids.contiguous(), dy = args.dy.contiguous();
  CudaStream& stream = stream_for(dy);
  const auto tokens = static_cast<int>(blocks_for("embedding_grad", ids.numel(), 1));
  const auto columns = static_cast<int>(args.dtable.dim(1));
  const int64_t table_rows = args.dtable.dim(0);
  const auto leaders = stream.allocate(static_cast<size_t>(tokens) * sizeof(int32_t));
  const auto partial = stream.allocate(static_cast<size_t>(tokens) * static_cast<size_t>(columns) * sizeof(float));
  const auto named = stream.allocate(static_cast<size_t>(table_rows));
  auto* const leader = static_cast<int32_t*>(leaders.get());
  auto* const sums = static_cast<float*>(partial.get());
  auto* const names = static_cast<uint8_t*>(named.get());
  check_cuda(cudaMemsetAsync(names, 0, static_cast<size_t>(table_rows), stream.handle()), "embedding_grad");
  with_float("embedding_grad", dy.dtype(), [&]<class T>(T) {
    slice_sums<T><<<blocks_for("embedding_grad", tokens, kSlice), kThreads, 0, stream.handle()>>>(
        ids.data<int32_t>(), tokens, dy.data<T>(), table_rows, columns, leader, sums, names);
  });
  stream.enqueued("embedding_grad", {.bytes = traffic({&dy})});
  with_float("embedding_grad", args.dtable.dtype(), [&]<class D>(D) {
    add_slices<D><<<blocks_for("embedding_grad", table_rows, 1), kThreads, 0, stream.handle()>>>(leader, tokens, sums, names,
                                                                                                 args.dtable.data<D>(), columns);
  });
  stream.enqueued("embedding_grad");
}

}  // namespace flux2::cuda
