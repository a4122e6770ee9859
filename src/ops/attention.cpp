#include "ops/attention.h"

#include <cmath>
#include <utility>

#include "autograd/grad.h"
#include "ops/activation.h"
#include "ops/attention_groups.h"
#include "ops/empty.h"
#include "ops/linear.h"
#include "ops/view.h"

namespace flux2 {

namespace {

void check_heads(const Tensor& q, const Tensor& k, const Tensor& v) {
  require(q.rank() == 4 && k.rank() == 4 && k.shape() == v.shape() && q.dim(0) == k.dim(0) && q.dim(3) == k.dim(3) &&
              k.dim(2) > 0 && q.dim(2) % k.dim(2) == 0,
          "attention: q {}, k {}, v {}", q.shape(), k.shape(), v.shape());
  require_terms("attention", k.dim(1), q.shape());
}

Tensor log_sum_for(const Tensor& q) {
  return Tensor::like(q, q.dtype() == DType::F64 ? DType::F64 : DType::F32, {q.dim(0), q.dim(2), q.dim(1)});
}

// What the first of two runs left, if there is anything.
KeptAttention taken(KeptAttention* kept) { return kept ? std::exchange(*kept, {}) : KeptAttention{}; }

float default_scale(const Tensor& q) { return 1.0f / std::sqrt(static_cast<float>(q.dim(3))); }

void require_plain(const AttentionOptions& options) {
  require(options.scale == 0 && !options.causal && !options.key_mask.defined(),
          "attention beside an MLP has its own scale and no mask");
}

void require_no_gradient(const AttentionGroups* groups, bool recording) {
  require(!groups || !recording, "attention with groups of rows has no gradient");
}

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  check_heads(q, k, v);
  require(!options.causal || q.dim(1) <= k.dim(1), "attention: {} queries are the last of only {} tokens", q.dim(1), k.dim(1));
  require(!options.key_mask.defined() || options.key_mask.shape() == Shape{k.dim(0), k.dim(1)},
          "attention: key mask {} for keys {}", options.key_mask.defined() ? options.key_mask.shape() : Shape{}, k.shape());
  const float scale = options.scale != 0 ? options.scale : default_scale(q);
  const bool recording = wants_grad(q, k, v);
  require_no_gradient(options.groups, recording);
  require(!options.groups || (!options.causal && !options.key_mask.defined()), "attention: groups of rows beside another mask");

  const Tensor mask = options.key_mask;
  auto [y, log_sum] = taken(recording ? options.kept : nullptr);
  if (!y.defined()) {
    y = Tensor::like(q);
    if (recording) log_sum = log_sum_for(q);
    if (y.numel() > 0 && options.groups) grouped_attention(q, k, v, *options.groups, scale, y, options.eight_bits);
    else if (y.numel() > 0)
      q.device().kernels().attention({q, k, v, y, mask.defined() ? &mask : nullptr, recording ? &log_sum : nullptr, scale,
                                      options.causal, options.eight_bits && !recording});
    if (recording && options.kept) *options.kept = {y, log_sum};
  }
  Tensor out = record("attention", y, {q, k, v},
                      [q = q.detached(), k = k.detached(), v = v.detached(), y = y.detached(), log_sum = log_sum, mask, scale,
                       causal = options.causal](const Tensor& dy, GradSink& sink) {
                        const Tensor dq = sink.memory_for(0, q, q.shape()), dk = sink.memory_for(1, k, k.shape()),
                                     dv = sink.memory_for(2, v, v.shape());
                        q.device().kernels().attention_grad(
                            {q, k, v, y, log_sum, dy, dq, dk, dv, mask.defined() ? &mask : nullptr, scale, causal});
                        sink.add(0, dq);
                        sink.add(1, dk);
                        sink.add(2, dv);
                      });
  return reshape(out, {q.dim(0), q.dim(1), q.dim(2) * q.dim(3)});
}

Tensor attention_beside_swiglu(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& gate_up, std::optional<DType> as,
                               const AttentionOptions& options) {
  check_heads(q, k, v);
  require_plain(options);
  require(gate_up.rank() == 3 && gate_up.dim(0) == q.dim(0) && gate_up.dim(1) == q.dim(1) && gate_up.dim(2) % 2 == 0,
          "attention beside swiglu: queries {} beside {}", q.shape(), gate_up.shape());
  const int64_t width = q.dim(2) * q.dim(3), hidden = gate_up.dim(2) / 2;
  const Kernels& kernels = q.device().kernels();
  if (as && *as != q.dtype() && !wants_grad(q, k, v, gate_up)) {
    const Tensor a = matrix_rows(attention(q, k, v, options)), u = matrix_rows(gate_up);
    const Tensor y = result_like(q, *as, {q.dim(0), q.dim(1), width + hidden});
    require_terms("attention beside swiglu", width * hidden, y.shape());
    if (y.numel() > 0)
      kernels.quantise_swiglu(
          {&a, u.narrowed(1, 0, hidden), u.narrowed(1, hidden, hidden), y.reshaped({u.dim(0), width + hidden})});
    return y;
  }
  Tensor y = Tensor::like(q, {q.dim(0), q.dim(1), width + hidden});
  require_terms("attention beside swiglu", width * hidden, y.shape());
  if (y.numel() == 0) return y;
  const bool recording = wants_grad(q, k, v);
  require_no_gradient(options.groups, recording);
  const float scale = default_scale(q);
  const Tensor part = y.narrowed(2, 0, width).reshaped(q.shape());
  auto [before, log_sum] = taken(recording ? options.kept : nullptr);
  if (before.defined()) {
    part.copy_from(before);
  } else if (options.groups) {
    grouped_attention(q, k, v, *options.groups, scale, part, options.eight_bits);
  } else {
    if (recording) log_sum = log_sum_for(q);
    kernels.attention({q, k, v, part, nullptr, recording ? &log_sum : nullptr, scale, false, options.eight_bits && !recording});
    if (recording && options.kept) *options.kept = {part.contiguous(), log_sum};
  }
  kernels.swiglu({gate_up.narrowed(2, 0, hidden), gate_up.narrowed(2, hidden, hidden), y.narrowed(2, width, hidden)});
  return record("attention_beside_swiglu", y, {q, k, v, gate_up},
                [q = q.detached(), k = k.detached(), v = v.detached(), gate_up = gate_up.detached(), y = y.detached(),
                 log_sum = log_sum, width, hidden, scale](const Tensor& dy, GradSink& sink) {
                  const Kernels& table = dy.device().kernels();
                  if (sink.wants(3)) {
                    const Tensor d = sink.memory_for(3, gate_up, gate_up.shape());
                    table.swiglu_grad({gate_up.narrowed(2, 0, hidden), gate_up.narrowed(2, hidden, hidden),
                                       dy.narrowed(2, width, hidden), d.narrowed(2, 0, hidden), d.narrowed(2, hidden, hidden)});
                    sink.add(3, d);
                  }
                  if (!log_sum.defined()) return;
                  const Tensor dq = sink.memory_for(0, q, q.shape()), dk = sink.memory_for(1, k, k.shape()),
                               dv = sink.memory_for(2, v, v.shape());
                  table.attention_grad({q, k, v, y.narrowed(2, 0, width).reshaped(q.shape()), log_sum,
                                        dy.narrowed(2, 0, width).reshaped(q.shape()), dq, dk, dv, nullptr, scale, false});
                  sink.add(0, dq);
                  sink.add(1, dk);
                  sink.add(2, dv);
                });
}

Tensor attention_beside_mlp(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& x, const Tensor& w,
                            const AttentionOptions& options) {
  if (wants_grad(q, k, v) || !fuses_swiglu(x, w)) return attention_beside_swiglu(q, k, v, linear(x, w), {}, options);
  require_plain(options);
  require(
      x.rank() == 3 && x.dim(0) == q.dim(0) && x.dim(1) == q.dim(1) && w.rank() == 2 && w.dim(1) == x.dim(2) && w.dim(0) % 2 == 0,
      "attention beside an MLP: queries {} beside {} for a weight of shape {}", q.shape(), x.shape(), w.shape());
  check_heads(q, k, v);
  const int64_t width = q.dim(2) * q.dim(3), hidden = w.dim(0) / 2;
  Tensor y = Tensor::like(q, {q.dim(0), q.dim(1), width + hidden});
  require_terms("attention beside an MLP", width * hidden * x.dim(2), y.shape());
  if (y.numel() == 0) return y;
  const Kernels& kernels = q.device().kernels();
  const Tensor part = y.narrowed(2, 0, width).reshaped(q.shape());
  if (options.groups) grouped_attention(q, k, v, *options.groups, default_scale(q), part, options.eight_bits);
  else kernels.attention({q, k, v, part, nullptr, nullptr, default_scale(q), false, options.eight_bits});
  kernels.linear_swiglu({matrix_rows(x), w, matrix_rows(y.narrowed(2, width, hidden))});
  return y;
}

}  // namespace flux2
