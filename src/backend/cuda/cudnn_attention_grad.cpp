#include <algorithm>
#include <array>

#include "backend/cuda/cuda_error.h"
#include "backend/cuda/cudnn_state.h"

namespace flux2 {

using namespace cudnn;

namespace {

// How dq, a sum over all keys, is formed. In fixed order: the library stores the gradients of the scores of all heads, then
// multiplies them with k. Otherwise each block of keys adds its part to an F32 sum as it finishes, so the last bits of dq vary
// from run to run, but the scores are never stored. The first way is used up to so many bytes of scores; there it is the faster
// one too.
constexpr int64_t kScoreBytes = int64_t{300} << 20;

// The places among the pointers of a plan.
enum Number : int64_t { kQ, kK, kV, kY, kLogSum, kDy, kDq, kDk, kDv, kRowSum, kDqSum, kScale, kOne, kPointers };

// Builds the equations of the gradient operation by operation. Between tensors nothing is stored: the library recognises the
// whole and runs its own kernel for it.
class Equations {
 public:
  explicit Equations(const AttentionGradArgs& a)
      : batch_(a.q.dim(0)), heads_(a.q.dim(2)), queries_(a.q.dim(1)), keys_(a.k.dim(1)), width_(a.q.dim(3)) {}

  const Descriptor& given(const TensorSpec& spec) { return work_.tensor(spec); }
  const Descriptor& host_value(int64_t number) {
    return work_.tensor({number, CUDNN_DATA_FLOAT, {1, 1, 1, 1}, {1, 1, 1, 1}, TensorSpec::HostValue});
  }
  // F32 [B, H, S, 1], a value for every query.
  TensorSpec per_query(int64_t number) const {
    return {number, CUDNN_DATA_FLOAT, {batch_, heads_, queries_, 1}, {heads_ * queries_, queries_, 1, 1}};
  }
  const Descriptor& intermediate(TensorSpec spec) {
    spec.number = next_++;
    spec.where = TensorSpec::Intermediate;
    return work_.tensor(spec);
  }
  const Descriptor& scores() {
    return intermediate(
        {0, CUDNN_DATA_FLOAT, {batch_, heads_, queries_, keys_}, {heads_ * queries_ * keys_, queries_ * keys_, keys_, 1}});
  }
  // The same scores seen the other way round, rounded to what a product takes.
  const Descriptor& scores_turned() {
    return intermediate(
        {0, CUDNN_DATA_BFLOAT16, {batch_, heads_, keys_, queries_}, {heads_ * queries_ * keys_, queries_ * keys_, 1, keys_}});
  }
  // F32 [B, H, S, D], contiguous.
  TensorSpec rows_in_memory(int64_t number) const {
    return {
        number, CUDNN_DATA_FLOAT, {batch_, heads_, queries_, width_}, {heads_ * queries_ * width_, queries_ * width_, width_, 1}};
  }
  const Descriptor& rows() { return intermediate(rows_in_memory(0)); }

  const Descriptor& pointwise(cudnnPointwiseMode_t mode, const Descriptor& x, const Descriptor* b, const Descriptor& y) {
    const Descriptor& function = work_.helper(CUDNN_BACKEND_POINTWISE_DESCRIPTOR)
                                     .set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, mode)
                                     .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
                                     .finalise();
    Descriptor& operation = work_.operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
                                .set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, function)
                                .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x)
                                .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    if (b) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, *b);
    operation.finalise();
    return y;
  }
  const Descriptor& product(const Descriptor& a, const Descriptor& b, const Descriptor& y) {
    const Descriptor& function = work_.helper(CUDNN_BACKEND_MATMUL_DESCRIPTOR)
                                     .set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
                                     .finalise();
    work_.operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)
        .set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, a)
        .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, b)
        .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, y)
        .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, function)
        .finalise();
    return y;
  }
  const Descriptor& sum(const Descriptor& x, const Descriptor& y) {
    const Descriptor& function =
        work_.helper(CUDNN_BACKEND_REDUCTION_DESCRIPTOR)
            .set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, CUDNN_DATA_FLOAT)
            .set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, CUDNN_REDUCE_TENSOR_ADD)
            .finalise();
    work_.operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, function)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x)
        .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y)
        .finalise();
    return y;
  }
  const Descriptor& view(const Descriptor& x, const Descriptor& y) {
    work_.operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
        .set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x)
        .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y)
        .finalise();
    return y;
  }

  Operations take() { return std::move(work_); }

 private:
  Operations work_;
  const int64_t batch_, heads_, queries_, keys_, width_;
  int64_t next_ = kPointers;
};

// [B, S, H, D] as [B, H, D, S]: the second operand of a product over D.
TensorSpec turned(int64_t number, const Tensor& t) { return spec(number, t, {0, 2, 3, 1}); }

// p = exp(scale · q kᵀ − log Σ),  D = Σ dy · y,  ds = scale · p · (dy vᵀ − D);  dv = pᵀ dy,  dk = dsᵀ q,  dq = ds k.
Operations describe_attention_grad(const AttentionGradArgs& a, bool fixed_order) {
  Equations e(a);
  const auto heads = [&](int64_t number, const Tensor& t) -> const Descriptor& { return e.given(spec(number, t, kHeadsSecond)); };
  const Descriptor &q = heads(kQ, a.q), &dy = heads(kDy, a.dy), &k = e.given(turned(kK, a.k)), &v = e.given(turned(kV, a.v));
  const Descriptor &scale = e.host_value(kScale), &one = e.host_value(kOne);
  TensorSpec log_sum = e.per_query(kLogSum);
  log_sum.strides = {a.log_sum.stride(0), a.log_sum.stride(1), 1, 1};

  const Descriptor& along = e.pointwise(CUDNN_POINTWISE_MUL, dy, &heads(kY, a.y), e.rows());
  const Descriptor& sums = e.sum(along, e.intermediate(e.per_query(0)));
  const Descriptor& row_sum = e.pointwise(CUDNN_POINTWISE_MUL, sums, &one, e.given(e.per_query(kRowSum)));

  const Descriptor& scaled = e.pointwise(CUDNN_POINTWISE_MUL, e.product(q, k, e.scores()), &scale, e.scores());
  const Descriptor& p = e.pointwise(CUDNN_POINTWISE_EXP, e.pointwise(CUDNN_POINTWISE_SUB, scaled, &e.given(log_sum), e.scores()),
                                    nullptr, e.scores());
  e.product(e.view(p, e.scores_turned()), dy, heads(kDv, a.dv));

  const Descriptor& dp = e.pointwise(CUDNN_POINTWISE_SUB, e.product(dy, v, e.scores()), &row_sum, e.scores());
  const Descriptor& ds =
      e.pointwise(CUDNN_POINTWISE_MUL, e.pointwise(CUDNN_POINTWISE_MUL, dp, &p, e.scores()), &scale, e.scores());
  e.product(e.view(ds, e.scores_turned()), q, heads(kDk, a.dk));
  TensorSpec keys = spec(0, a.k, kHeadsSecond);
  keys.type = CUDNN_DATA_FLOAT;
  const Descriptor& turned_keys = e.view(k, e.intermediate(keys));
  if (fixed_order) {
    e.product(ds, turned_keys, heads(kDq, a.dq));
  } else {
    e.pointwise(CUDNN_POINTWISE_IDENTITY, e.product(ds, turned_keys, e.given(e.rows_in_memory(kDqSum))), nullptr,
                heads(kDq, a.dq));
  }
  return e.take();
}

}  // namespace

bool Cudnn::attention_grad(const AttentionGradArgs& a) {
  const int64_t batch = a.q.dim(0), queries = a.q.dim(1), heads = a.q.dim(2), keys = a.k.dim(1), width = a.q.dim(3);
  if (!state_ || a.causal || a.key_mask || a.k.dim(2) != heads || (width != 64 && width != 128)) return false;
  for (const Tensor* t : {&a.q, &a.k, &a.v, &a.y, &a.dy, &a.dq, &a.dk, &a.dv})
    if (!is_readable(*t)) return false;

  const bool fixed_order = 2 * batch * heads * queries * keys <= kScoreBytes;
  Key key{2};
  for (const Tensor* t : {&a.q, &a.k, &a.v, &a.y, &a.dy, &a.dq, &a.dk, &a.dv}) add_layout(key, *t);
  const auto rows = static_cast<size_t>(batch * heads * queries);
  const auto row_sums = state_->pool->allocate(rows * sizeof(float));
  const size_t dq_bytes = fixed_order ? 0 : rows * static_cast<size_t>(width) * sizeof(float);
  const auto dq_sum = fixed_order ? nullptr : state_->pool->allocate(dq_bytes);
  const float one = 1.0f;
  std::array<const void*, kPointers> pointers{};
  const std::array<const Tensor*, 9> tensors{&a.q, &a.k, &a.v, &a.y, &a.log_sum, &a.dy, &a.dq, &a.dk, &a.dv};
  for (size_t i = 0; i < tensors.size(); ++i) pointers[i] = tensors[i]->raw();
  pointers[kRowSum] = row_sums.get();
  pointers[kDqSum] = dq_sum.get();
  pointers[kScale] = &a.scale;
  pointers[kOne] = &one;
  const auto describe = [&] { return describe_attention_grad(a, fixed_order); };
  // Sums in any order differ between runs anyway, so the plan may be chosen by the clock.
  const Plan* plan = fixed_order ? state_->plan_for(key, describe) : state_->fastest_plan_for(key, describe, pointers);
  if (!plan) return false;
  constexpr size_t kClearsItself = 90600;  // the version since which the library sets the sums to 0
  if (dq_sum && cudnnGetVersion() < kClearsItself)
    check_cuda(cudaMemsetAsync(dq_sum.get(), 0, dq_bytes, state_->stream), "attention's gradient");
  state_->run(*plan, pointers);
  return true;
}

}  // namespace flux2
