#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

struct Row {
  int64_t stride, keys, first_query, out_stride, dout_stride;
  int width;
  bool causal;
  const int32_t* key_mask;
  const float* log_sum;
  float scale;
};

// A block per query. p = exp(s − log Σ), ds = scale · p · (dp − Σ dy · y).
template <class T>
__global__ void __launch_bounds__(kThreads) softmax_grad_kernel(const float* scores, const float* dprobabilities, const T* out,
                                                                const T* dout, T* probabilities, T* dscores, const Row row) {
  const int64_t query = blockIdx.x;
  float product = 0;
  for (int d = threadIdx.x; d < row.width; d += kThreads)
    product += as_float(out[query * row.out_stride + d]) * as_float(dout[query * row.dout_stride + d]);
  product = block_sum<kThreads>(product);
  const float log_sum = row.log_sum[query];
  const int64_t visible = row.causal ? min(row.keys, row.first_query + query + 1) : row.keys;
  for (int64_t j = threadIdx.x; j < row.keys; j += kThreads) {
    const int64_t i = query * row.stride + j;
    const bool seen = j < visible && (!row.key_mask || row.key_mask[j] != 0);
    // Rounded once for both uses, so that dv and dk come from the same probabilities.
    const T p = from_float<T>(seen ? __expf(scores[i] - log_sum) : 0.0f);
    const float ds = seen ? row.scale * as_float(p) * (dprobabilities[i] - product) : 0.0f;
    probabilities[i] = p;
    dscores[i] = from_float<T>(ds);
  }
}

}  // namespace

void softmax_grad(const SoftmaxGradArgs& args) {
  CudaStream& stream = stream_for(args.scores);
  const Row row{args.scores.stride(0), args.keys,
                args.first_query,      args.out.stride(0),
                args.dout.stride(0),   static_cast<int>(args.out.dim(1)),
                args.causal,           args.key_mask,
                args.log_sum,          args.scale};
  with_float("attention_grad", args.out.dtype(), [&]<class T>(T) {
    softmax_grad_kernel<T><<<blocks_for("attention_grad", args.scores.dim(0), 1), kThreads, 0, stream.handle()>>>(
        args.scores.data<float>(), args.dprobabilities.data<float>(), args.out.data<T>(), args.dout.data<T>(),
        args.probabilities.data<T>(), args.dscores.data<T>(), row);
  });
  stream.enqueued("attention_grad");
}

}  // namespace flux2::cuda
