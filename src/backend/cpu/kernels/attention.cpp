#include <cmath>
#include <limits>

#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::cpu {

namespace {

int64_t row_at(const Tensor& t, int64_t b, int64_t s, int64_t h) { return b * t.stride(0) + s * t.stride(1) + h * t.stride(2); }

// Which keys a query sees.
struct Visibility {
  bool causal;
  int64_t earlier;  // keys of tokens before the first query
  const Tensor* key_mask;

  bool operator()(int64_t b, int64_t i, int64_t j) const {
    if (causal && j > i + earlier) return false;
    return !key_mask || key_mask->data<int32_t>()[b * key_mask->stride(0) + j * key_mask->stride(1)] != 0;
  }
};

template <class C>
C* log_sum_at(const Tensor& log_sum, int64_t b, int64_t h, int64_t i) {
  return log_sum.data<C>() + b * log_sum.stride(0) + h * log_sum.stride(1) + i * log_sum.stride(2);
}

}  // namespace

void attention(const AttentionArgs& a) {
  const int64_t batch = a.q.dim(0), queries = a.q.dim(1), heads = a.q.dim(2), width = a.q.dim(3), keys = a.k.dim(1);
  const int64_t group = heads / std::max<int64_t>(a.k.dim(2), 1);
  const Visibility visible{a.causal, keys - queries, a.key_mask};
  with_compute_type(a.y.dtype(), [&]<class C>() {
    const auto& math = cpu_stream(a.y).cpu().row_math<C>();
    parallel_rows(cpu_stream(a.y), batch * heads * queries, keys * width, [&](int64_t begin, int64_t end) {
      Reader<C> qs(a.q), ks(a.k), vs(a.v);
      std::vector<C> scores(static_cast<size_t>(keys)), total(static_cast<size_t>(width));
      std::vector<int64_t> seen(static_cast<size_t>(keys));
      for (int64_t task = begin; task < end; ++task) {
        const int64_t i = task % queries, h = task / queries % heads, b = task / queries / heads;
        const C* q = qs(row_at(a.q, b, i, h), width);
        int64_t count = 0;  // only visible keys take part, so that what a hidden key holds can do no harm
        for (int64_t j = 0; j < keys; ++j) {
          if (!visible(b, i, j)) continue;
          seen[static_cast<size_t>(count)] = j;
          const C* k = ks(row_at(a.k, b, j, h / group), width);
          scores[static_cast<size_t>(count++)] = static_cast<C>(a.scale) * math.dot(q, k, width);
        }
        std::fill(total.begin(), total.end(), C(0));
        C log_sum = -std::numeric_limits<C>::infinity();
        if (count > 0) {
          const C largest = math.max(scores.data(), count);
          const C sum = math.exp_sum(scores.data(), largest, scores.data(), count);
          log_sum = largest + std::log(sum);
          for (int64_t s = 0; s < count; ++s) {
            const C* v = vs(row_at(a.v, b, seen[static_cast<size_t>(s)], h / group), width);
            math.axpy(scores[static_cast<size_t>(s)] / sum, v, total.data(), width);
          }
        }
        store(a.y.dtype(), total.data(), element(a.y, row_at(a.y, b, i, h)), 1, width);
        if (a.log_sum) *log_sum_at<C>(*a.log_sum, b, h, i) = log_sum;
      }
    });
  });
}

// With P = exp(S − log_sum), D = Σ dy · y: dS = P · (dy·v − D), dq = scale · dS·k, dk = scale · dSᵀ·q, dv = Pᵀ·dy.
// One pass over queries makes dq and one over keys makes dk and dv: the products are formed twice, but every sum
// belongs to one thread and has one order.
void attention_grad(const AttentionGradArgs& a) {
  const int64_t batch = a.q.dim(0), queries = a.q.dim(1), heads = a.q.dim(2), width = a.q.dim(3);
  const int64_t keys = a.k.dim(1), key_heads = a.k.dim(2), group = heads / std::max<int64_t>(key_heads, 1);
  const Visibility visible{a.causal, keys - queries, a.key_mask};
  CpuStream& stream = cpu_stream(a.dq);
  with_compute_type(a.dq.dtype(), [&]<class C>() {
    const auto& math = stream.cpu().row_math<C>();
    const C scale = static_cast<C>(a.scale);
    std::vector<C> products(static_cast<size_t>(batch * heads * queries));  // D, [B, H, S]

    parallel_rows(stream, batch * heads * queries, 2 * keys * width, [&](int64_t begin, int64_t end) {
      Reader<C> qs(a.q), ks(a.k), vs(a.v), ys(a.y), dys(a.dy);
      std::vector<C> dq(static_cast<size_t>(width));
      for (int64_t task = begin; task < end; ++task) {
        const int64_t i = task % queries, h = task / queries % heads, b = task / queries / heads;
        const C *q = qs(row_at(a.q, b, i, h), width), *dy = dys(row_at(a.dy, b, i, h), width);
        const C product = products[static_cast<size_t>(task)] = math.dot(dy, ys(row_at(a.y, b, i, h), width), width);
        const C log_sum = *log_sum_at<C>(a.log_sum, b, h, i);
        std::fill(dq.begin(), dq.end(), C(0));
        for (int64_t j = 0; j < keys; ++j) {
          if (!visible(b, i, j)) continue;
          const C* k = ks(row_at(a.k, b, j, h / group), width);
          const C p = std::exp(scale * math.dot(q, k, width) - log_sum);
          const C ds = p * (math.dot(dy, vs(row_at(a.v, b, j, h / group), width), width) - product);
          math.axpy(scale * ds, k, dq.data(), width);
        }
        store(a.dq.dtype(), dq.data(), element(a.dq, row_at(a.dq, b, i, h)), 1, width);
      }
    });

    parallel_rows(stream, batch * key_heads * keys, 2 * group * queries * width, [&](int64_t begin, int64_t end) {
      Reader<C> qs(a.q), ks(a.k), vs(a.v), dys(a.dy);
      std::vector<C> dk(static_cast<size_t>(width)), dv(static_cast<size_t>(width));
      for (int64_t task = begin; task < end; ++task) {
        const int64_t j = task % keys, g = task / keys % key_heads, b = task / keys / key_heads;
        const C *k = ks(row_at(a.k, b, j, g), width), *v = vs(row_at(a.v, b, j, g), width);
        std::fill(dk.begin(), dk.end(), C(0));
        std::fill(dv.begin(), dv.end(), C(0));
        for (int64_t h = g * group; h < (g + 1) * group; ++h) {
          for (int64_t i = 0; i < queries; ++i) {
            if (!visible(b, i, j)) continue;
            const C *q = qs(row_at(a.q, b, i, h), width), *dy = dys(row_at(a.dy, b, i, h), width);
            const C p = std::exp(scale * math.dot(q, k, width) - *log_sum_at<C>(a.log_sum, b, h, i));
            const C ds = p * (math.dot(dy, v, width) - products[static_cast<size_t>((b * heads + h) * queries + i)]);
            math.axpy(p, dy, dv.data(), width);
            math.axpy(scale * ds, q, dk.data(), width);
          }
        }
        store(a.dk.dtype(), dk.data(), element(a.dk, row_at(a.dk, b, j, g)), 1, width);
        store(a.dv.dtype(), dv.data(), element(a.dv, row_at(a.dv, b, j, g)), 1, width);
      }
    });
  });
}

}  // namespace flux2::cpu
