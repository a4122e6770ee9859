#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/kernels.h"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

// A block per token. The first token that names a row adds up all that do, in their order: no two blocks write one row, and
// the sum never depends on who comes first.
template <class T, class D>
__global__ void __launch_bounds__(kThreads)
    embedding_grad_kernel(const int32_t* ids, int tokens, const T* dy, D* dtable, int64_t table_rows, int columns) {
  const int32_t id = ids[blockIdx.x];
  if (id < 0 || id >= table_rows) return;
  int earlier = 0;
  for (int i = threadIdx.x; i < static_cast<int>(blockIdx.x); i += kThreads) earlier |= ids[i] == id;
  if (__syncthreads_or(earlier)) return;
  D* row = dtable + static_cast<int64_t>(id) * columns;
  for (int c = threadIdx.x; c < columns; c += kThreads) {
    float total = as_float(row[c]);
    for (int i = blockIdx.x; i < tokens; ++i)
      if (ids[i] == id) total += as_float(dy[static_cast<int64_t>(i) * columns + c]);
    row[c] = from_float<D>(total);
  }
}

}  // namespace

void embedding_grad(const EmbeddingGradArgs& args) {
  if (args.dy.numel() == 0) return;
  const Tensor ids = args.ids.contiguous(), dy = args.dy.contiguous();
  CudaStream& stream = stream_for(dy);
  const auto tokens = blocks_for("embedding_grad", ids.numel(), 1);
  with_float("embedding_grad", dy.dtype(), [&]<class T>(T) {
    with_float("embedding_grad", args.dtable.dtype(), [&]<class D>(D) {
      embedding_grad_kernel<T, D><<<tokens, kThreads, 0, stream.handle()>>>(
          ids.data<int32_t>(), static_cast<int>(tokens), dy.data<T>(), args.dtable.data<D>(), args.dtable.dim(0),
          static_cast<int>(args.dtable.dim(1)));
    });
  });
  stream.enqueued("embedding_grad", {.bytes = traffic({&dy})});
}

}  // namespace flux2::cuda
