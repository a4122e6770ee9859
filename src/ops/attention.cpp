#include "ops/attention.h"

#include <cmath>

#include "autograd/grad.h"
#include "ops/activation.h"
#include "ops/linear.h"
#include "ops/view.h"

namespace flux2 {

namespace {

void check_heads(const Tensor& q, const Tensor& k, const Tensor& v) {
  check(q.rank() == 4 && k.rank() == 4 && k.shape() == v.shape() && q.dim(0) == k.dim(0) && q.dim(3) == k.dim(3) &&
            k.dim(2) > 0 && q.dim(2) % k.dim(2) == 0,
        "attention: q {}, k {}, v {}", q.shape(), k.shape(), v.shape());
}

float default_scale(const Tensor& q) { return 1.0f / std::sqrt(static_cast<float>(q.dim(3))); }

}  // namespace

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  check_heads(q, k, v);
  check(!options.key_mask.defined() || options.key_mask.shape() == Shape{k.dim(0), k.dim(1)}, "attention: key mask {} for keys {}",
        options.key_mask.defined() ? options.key_mask.shape() : Shape{}, k.shape());
  const float scale = options.scale != 0 ? options.scale : default_scale(q);
  const bool recording = wants_grad(q, k, v);

  Tensor y = Tensor::like(q);
  Tensor log_sum;
  if (recording) log_sum = Tensor::like(q, q.dtype() == DType::F64 ? DType::F64 : DType::F32, {q.dim(0), q.dim(2), q.dim(1)});
  const Tensor mask = options.key_mask;
  if (y.numel() > 0)
    q.device().kernels().attention({q, k, v, y, mask.defined() ? &mask : nullptr, recording ? &log_sum : nullptr, scale,
                                    options.causal});
  Tensor out = record("attention", y, {q, k, v},
                      [q = q.detached(), k = k.detached(), v = v.detached(), y = y.detached(), log_sum, mask, scale,
                       causal = options.causal](const Tensor& dy, GradSink& sink) {
                        Tensor dq = Tensor::like(q), dk = Tensor::like(k), dv = Tensor::like(v);
                        q.device().kernels().attention_grad({q, k, v, y, log_sum, dy, dq, dk, dv, mask.defined() ? &mask : nullptr,
                                                             scale, causal});
                        sink.add(0, dq);
                        sink.add(1, dk);
                        sink.add(2, dv);
                      });
  return reshape(out, {q.dim(0), q.dim(1), q.dim(2) * q.dim(3)});
}

namespace {

// Room for [ attention ‖ mlp ], attention's part filled in; the other part is returned beside it.
struct Joint {
  Tensor all, mlp;
};
Joint attention_with_room(const Tensor& q, const Tensor& k, const Tensor& v, int64_t hidden) {
  check_heads(q, k, v);
  const int64_t width = q.dim(2) * q.dim(3);
  const Tensor all = Tensor::like(q, {q.dim(0), q.dim(1), width + hidden});
  if (all.numel() > 0)
    q.device().kernels().attention({q, k, v, all.narrowed(2, 0, width).reshaped(q.shape()), nullptr, nullptr, default_scale(q), false});
  return {all, all.narrowed(2, width, hidden)};
}

}  // namespace

Tensor attention_beside_swiglu(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& gate_up) {
  if (wants_grad(q, k, v, gate_up)) return concat({attention(q, k, v), swiglu(gate_up)});
  check(gate_up.rank() == 3 && gate_up.dim(0) == q.dim(0) && gate_up.dim(1) == q.dim(1) && gate_up.dim(2) % 2 == 0,
        "attention beside swiglu: queries {} beside {}", q.shape(), gate_up.shape());
  const int64_t hidden = gate_up.dim(2) / 2;
  const auto [all, mlp] = attention_with_room(q, k, v, hidden);
  if (mlp.numel() > 0) q.device().kernels().swiglu({gate_up.narrowed(2, 0, hidden), gate_up.narrowed(2, hidden, hidden), mlp});
  return all;
}

Tensor attention_beside_mlp(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& x, const Tensor& w) {
  if (wants_grad(q, k, v) || !fuses_swiglu(x, w)) return attention_beside_swiglu(q, k, v, linear(x, w));
  check(x.rank() == 3 && x.dim(0) == q.dim(0) && x.dim(1) == q.dim(1) && w.rank() == 2 && w.dim(1) == x.dim(2) && w.dim(0) % 2 == 0,
        "attention beside an MLP: queries {} beside {} for a weight of shape {}", q.shape(), x.shape(), w.shape());
  const int64_t hidden = w.dim(0) / 2, tokens = x.dim(0) * x.dim(1);
  const auto [all, mlp] = attention_with_room(q, k, v, hidden);
  if (mlp.numel() > 0)
    q.device().kernels().linear_swiglu({x.contiguous().reshaped({tokens, x.dim(2)}), w, mlp.reshaped({tokens, hidden})});
  return all;
}

}  // namespace flux2
