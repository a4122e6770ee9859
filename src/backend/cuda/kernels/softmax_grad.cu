#include "backend/cuda/kernels/device_math.cuh"
#include "backend/cuda/kernels/parts.h"

namespace flux2::cuda {

namespace {

constexpr int kThreads = 256;

// Strides in elements; `item` is that of a batch.
struct Rows {
  int64_t queries, stride, keys, first_query, out_stride, out_item, dout_stride, dout_item, log_sum_item;
  int width;
  bool causal;
  const int32_t* key_mask;
  const float* log_sum;
  float scale;
};

// A block per query. p = exp(s − log Σ), ds = scale · p · (dp − Σ dy · y).
template <class T>
__global__ void __launch_bounds__(kThreads) softmax_grad_kernel(const float* scores, const float* dprobabilities, const T* out,
                                                                const T* dout, T* probabilities, T* dscores, const Rows row) {
  const int64_t item = blockIdx.x / row.queries, query = blockIdx.x % row.queries;
  out += item * row.out_item + query * row.out_stride;
  dout += item * row.dout_item + query * row.dout_stride;
  float product = 0;
  for (int d = threadIdx.x; d < row.width; d += kThreads) product += as_float(out[d]) * as_float(dout[d]);
  product = block_sum<kThreads>(product);
  const float log_sum = row.log_sum[item * row.log_sum_item + query];
  const int32_t* const mask = row.key_mask ? row.key_mask + item * row.keys : nullptr;
  const int64_t visible = row.causal ? min(row.keys, row.first_query + query + 1) : row.keys;
  for (int64_t j = threadIdx.x; j < row.keys; j += kThreads) {
    const int64_t i = blockIdx.x * row.stride + j;
    const bool seen = j < visible && (!mask || mask[j] != 0);
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
  const int64_t items = args.scores.dim(0), queries = args.scores.dim(1);
  const Rows rows{.queries = queries,
                  .stride = args.scores.stride(1),
                  .keys = args.keys,
                  .first_query = args.first_query,
                  .out_stride = args.out.stride(1),
                  .out_item = args.out.stride(0),
                  .dout_stride = args.dout.stride(1),
                  .dout_item = args.dout.stride(0),
                  .log_sum_item = args.log_sum_stride,
                  .width = static_cast<int>(args.out.dim(2)),
                  .causal = args.causal,
                  .key_mask = args.key_mask,
                  .log_sum = args.log_sum,
                  .scale = args.scale};
  with_float("attention_grad", args.out.dtype(), [&]<class T>(T) {
    softmax_grad_kernel<T><<<blocks_for("attention_grad", items * queries, 1), kThreads, 0, stream.handle()>>>(
        args.scores.data<float>(), args.dprobabilities.data<float>(), args.out.data<T>(), args.dout.data<T>(),
        args.probabilities.data<T>(), args.dscores.data<T>(), rows);
  });
  stream.enqueued("attention_grad");
}

}  // namespace flux2::cuda
