#include "ops/attention.h"

#include <cmath>

#include "autograd/grad.h"
#include "ops/view.h"

namespace flux2 {

Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  check(q.rank() == 4 && k.rank() == 4 && k.shape() == v.shape() && q.dim(0) == k.dim(0) && q.dim(3) == k.dim(3) &&
            k.dim(2) > 0 && q.dim(2) % k.dim(2) == 0,
        "attention: q {}, k {}, v {}", q.shape(), k.shape(), v.shape());
  check(!options.key_mask.defined() || options.key_mask.shape() == Shape{k.dim(0), k.dim(1)}, "attention: key mask {} for keys {}",
        options.key_mask.defined() ? options.key_mask.shape() : Shape{}, k.shape());
  const float scale = options.scale != 0 ? options.scale : 1.0f / std::sqrt(static_cast<float>(q.dim(3)));
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

}  // namespace flux2
