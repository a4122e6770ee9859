#include <algorithm>

#include "backend/cpu/cpu_stream.h"
#include "backend/cpu/gemm/operands.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::gemm {

namespace {

constexpr int64_t kGradQueries = 256;  // queries whose scores are in memory at once

// One head of a tensor F32 [B, S, H, D] as a matrix [S, D].
struct HeadMatrix {
  float* data;
  int64_t stride;

  HeadMatrix(const Tensor& x, int64_t batch, int64_t head)
      : data(x.data<float>() + batch * x.stride(0) + head * x.stride(2)), stride(x.stride(1)) {}

  float* row(int64_t s) const { return data + s * stride; }
  MatrixRows<float> rows(int64_t from = 0) const { return {row(from), DType::F32, stride}; }
  Output output(int64_t from = 0) const { return {.data = row(from), .dtype = DType::F32, .row_stride = stride}; }
};

// With P = exp(scale · q kᵀ − log_sum), D = Σ dy · y and dS = scale · P · (dy vᵀ − D): dq = dS k, dk = dSᵀ q, dv = Pᵀ dy. Heads
// and blocks of queries come one after the other, so that every sum has one order; the products use all threads.
class AttentionGrad {
 public:
  AttentionGrad(const AttentionGradArgs& args, const MicroKernel<float>& kernel)
      : args_(args),
        kernel_(kernel),
        workers_(workers_of(args.dq)),
        math_(cpu_stream(args.dq).cpu().row_math<float>()),
        queries_(args.q.dim(1)),
        width_(args.q.dim(3)),
        keys_(args.k.dim(1)) {
    const int64_t scores = std::min(kGradQueries, queries_) * keys_;
    memory_ = workers_.stream.allocate(static_cast<size_t>(2 * scores + keys_ * width_) * sizeof(float));
    weights_ = static_cast<float*>(memory_.get());
    scores_ = weights_ + scores;
    part_ = scores_ + scores;
  }

  void run() const {
    const int64_t heads = args_.q.dim(2), groups = args_.k.dim(2), group = heads / groups;
    for (int64_t b = 0; b < args_.q.dim(0); ++b)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t q0 = 0; q0 < queries_; q0 += kGradQueries)
          add_block(b, h, h / group, q0, std::min(kGradQueries, queries_ - q0), h % group == 0 && q0 == 0);
  }

 private:
  // The block's part of dq, dk and dv. `first`: dk and dv hold nothing yet.
  void add_block(int64_t b, int64_t h, int64_t g, int64_t q0, int64_t rows, bool first) const {
    const HeadMatrix q(args_.q, b, h), k(args_.k, b, g), v(args_.v, b, g), dy(args_.dy, b, h);
    const MatrixRows<float> q_rows = q.rows(q0), k_rows = k.rows(), dy_rows = dy.rows(q0);
    const Output weights{.data = weights_, .dtype = DType::F32, .row_stride = keys_};
    const Output scores{.data = scores_, .dtype = DType::F32, .row_stride = keys_};
    product(q_rows, k_rows, {rows, keys_, width_}, weights);
    product(dy_rows, v.rows(), {rows, keys_, width_}, scores);
    workers_.threads.parallel_for(rows, [&](int64_t i) { finish_row(b, h, q0 + i, i); });

    const MatrixRows<float> p(weights_, DType::F32, keys_), ds(scores_, DType::F32, keys_);
    product(ds, Transposed<float>(k_rows), {rows, width_, keys_}, HeadMatrix(args_.dq, b, h).output(q0));
    add_product(Transposed<float>(p), Transposed<float>(dy_rows), rows, HeadMatrix(args_.dv, b, g), first);
    add_product(Transposed<float>(ds), Transposed<float>(q_rows), rows, HeadMatrix(args_.dk, b, g), first);
  }

  // From q · k and dy · v of one query to P and dS, 0 where the query does not see the key.
  void finish_row(int64_t b, int64_t h, int64_t query, int64_t i) const {
    float *p = weights_ + i * keys_, *ds = scores_ + i * keys_;
    const Tensor& log_sum = args_.log_sum;
    const float lowered = log_sum.data<float>()[b * log_sum.stride(0) + h * log_sum.stride(1) + query * log_sum.stride(2)];
    const float d = math_.dot(HeadMatrix(args_.dy, b, h).row(query), HeadMatrix(args_.y, b, h).row(query), width_);
    math_.scale(p, p, args_.scale, -lowered, keys_);
    math_.exp(p, p, keys_);
    math_.scale(ds, ds, args_.scale, -args_.scale * d, keys_);
    math_.mul(p, ds, ds, keys_);
    const auto hide = [&](int64_t key) { p[key] = ds[key] = 0; };
    if (args_.causal)
      for (int64_t j = std::max<int64_t>(query + 1 + keys_ - queries_, 0); j < keys_; ++j) hide(j);
    if (!args_.key_mask) return;
    const auto* visible = args_.key_mask->data<int32_t>() + b * args_.key_mask->stride(0);
    for (int64_t j = 0; j < keys_; ++j)
      if (visible[j * args_.key_mask->stride(1)] == 0) hide(j);
  }

  // Adds a · bᵀ [keys, width], summed over the rows of a block, to a gradient.
  void add_product(const RowSource<float>& a, const RowSource<float>& b, int64_t rows, const HeadMatrix& sum, bool first) const {
    const Extents extents{keys_, width_, rows};
    if (first) return product(a, b, extents, sum.output());
    product(a, b, extents, {.data = part_, .dtype = DType::F32, .row_stride = width_});
    workers_.threads.parallel_for(keys_, [&](int64_t j) { math_.add(sum.row(j), part_ + j * width_, sum.row(j), width_); });
  }

  void product(const RowSource<float>& a, const RowSource<float>& b, Extents extents, const Output& output) const {
    multiply(kernel_, a, b, extents, output, workers_);
  }

  const AttentionGradArgs& args_;
  const MicroKernel<float>& kernel_;
  const Workers workers_;
  const cpu::RowMath<float>& math_;
  const int64_t queries_, width_, keys_;
  std::shared_ptr<void> memory_;
  float *weights_, *scores_;  // [queries of a block, keys]: q kᵀ, then P; dy vᵀ, then dS
  float* part_;               // [keys, width]
};

}  // namespace

void attention_grad(const AttentionGradArgs& args, const KernelSet& set) {
  for (const Tensor* t : {&args.q, &args.k, &args.v, &args.y, &args.dy, &args.dq, &args.dk, &args.dv})
    if (t->dtype() != DType::F32) return cpu::attention_grad(args);
  if (args.q.numel() == 0 || args.k.numel() == 0) return cpu::attention_grad(args);
  AttentionGrad(args, *set.in_f32).run();
}

}  // namespace flux2::gemm
