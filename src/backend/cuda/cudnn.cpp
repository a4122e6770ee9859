#include "backend/cuda/cudnn.h"

#include <algorithm>
#include <array>
#include <utility>

#include "backend/cuda/cudnn_state.h"

namespace flux2 {

using namespace cudnn;

namespace {

Operations describe_attention(const AttentionArgs& a) {
  Operations work;
  Descriptor& attention = work.operation(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
  const TensorSpec scale{4, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, TensorSpec::HostValue};
  attention.set(CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, work.tensor(spec(0, a.q, kHeadsSecond)))
      .set(CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, work.tensor(spec(1, a.k, kHeadsSecond)))
      .set(CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, work.tensor(spec(2, a.v, kHeadsSecond)))
      .set(CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, work.tensor(spec(3, a.y, kHeadsSecond)))
      .set(CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, work.tensor(scale));
  if (a.log_sum) {
    const int64_t queries = a.q.dim(1), heads = a.q.dim(2);
    attention.set(CUDNN_ATTR_OPERATION_SDPA_FWD_STATSDESC,
                  work.tensor({5, CUDNN_DATA_FLOAT, {a.q.dim(0), heads, queries, 1}, {heads * queries, queries, 1, 1}}));
  }
  attention.finalise();
  return work;
}

// How far the output's last row or column reads past the input's end. Rows that are not read need no padding.
int64_t end_padding(int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t begin) {
  return std::max<int64_t>((out - 1) * stride + kernel - in - begin, 0);
}

// y = x + b, computed in F32.
void describe_sum(Operations& work, const Descriptor& x, const Descriptor& b, const Descriptor& y) {
  const Descriptor& sum = work.helper(CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
                              .set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, CUDNN_POINTWISE_ADD)
                              .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
                              .finalise();
  work.operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, sum)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y)
      .finalise();
}

Operations describe_convolution(const Conv2dArgs& a, const Tensor* residual) {
  Operations work;
  const std::array<int64_t, 2> dilations{1, 1}, strides{a.conv.stride, a.conv.stride}, before{a.conv.pad_top, a.conv.pad_left},
      after{end_padding(a.x.dim(1), a.y.dim(1), a.w.dim(1), a.conv.stride, a.conv.pad_top),
            end_padding(a.x.dim(2), a.y.dim(2), a.w.dim(2), a.conv.stride, a.conv.pad_left)};
  const Descriptor& convolution = work.helper(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR)
                                      .set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
                                      .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION)
                                      .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 2)
                                      .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, dilations)
                                      .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, strides)
                                      .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, before)
                                      .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, after)
                                      .finalise();
  // conv → (+ bias) → (+ residual) → y; what lies between stays in F32 and is never stored.
  const int sums = (a.bias != nullptr) + (residual != nullptr);
  std::array<const Descriptor*, 3> stages{};
  for (int i = 0; i <= sums; ++i) {
    TensorSpec stage = spec(i == sums ? 2 : 5 + i, a.y, kChannelsSecond);
    if (i < sums) stage.type = CUDNN_DATA_FLOAT, stage.where = TensorSpec::Intermediate;
    stages[static_cast<size_t>(i)] = &work.tensor(stage);
  }
  work.operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, work.tensor(spec(0, a.x, kChannelsSecond)))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, work.tensor(spec(1, a.w, kChannelsSecond)))
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, *stages[0])
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1.0f)
      .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 0.0f)
      .finalise();
  const int64_t channels = a.y.dim(3);
  if (a.bias)
    describe_sum(work, *stages[0], work.tensor({3, CUDNN_DATA_BFLOAT16, {1, channels, 1, 1}, {channels, 1, channels, channels}}),
                 *stages[1]);
  if (residual)
    describe_sum(work, *stages[a.bias ? 1 : 0], work.tensor(spec(4, *residual, kChannelsSecond)), *stages[a.bias ? 2 : 1]);
  return work;
}

}  // namespace

Cudnn::Cudnn(cudaStream_t stream, std::shared_ptr<CudaPool> pool) {
  if (is_installed()) state_ = std::make_unique<State>(stream, std::move(pool));
}
Cudnn::~Cudnn() = default;

bool Cudnn::attention(const AttentionArgs& a) {
  if (!state_ || a.causal || a.key_mask || !is_readable(a.q) || !is_readable(a.k) || !is_readable(a.v) || !is_readable(a.y))
    return false;
  Key key{0, a.log_sum != nullptr};
  for (const Tensor* t : {&a.q, &a.k, &a.v, &a.y}) add_layout(key, *t);
  const Plan* plan = state_->plan_for(key, [&] { return describe_attention(a); });
  if (!plan) return false;
  const std::array<const void*, 6> pointers{a.q.raw(), a.k.raw(), a.v.raw(),
                                            a.y.raw(), &a.scale,  a.log_sum ? a.log_sum->raw() : nullptr};
  state_->run(*plan, pointers);
  return true;
}

bool Cudnn::convolution(const Conv2dArgs& a, const Tensor* residual) {
  if (!state_ || !is_readable(a.x) || !is_readable(a.w) || !is_readable(a.y) || (residual && !is_readable(*residual)))
    return false;
  Key key{1, a.bias != nullptr, residual != nullptr, a.conv.stride, a.conv.pad_top, a.conv.pad_left};
  for (const Tensor* t : {&a.x, &a.w, &a.y}) add_layout(key, *t);
  const Plan* plan = state_->plan_for(key, [&] { return describe_convolution(a, residual); });
  if (!plan) return false;
  const std::array<const void*, 5> pointers{a.x.raw(), a.w.raw(), a.y.raw(), a.bias ? a.bias->raw() : nullptr,
                                            residual ? residual->raw() : nullptr};
  state_->run(*plan, pointers);
  return true;
}

}  // namespace flux2
