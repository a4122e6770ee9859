#include "ops/rope.h"

#include "autograd/grad.h"
#include "ops/norm.h"
#include "ops/view.h"

namespace flux2 {

Tensor rope(const Tensor& x, const Tensor& cosine, const Tensor& sine, RopePairs pairs) {
  require(x.rank() == 4 && cosine.shape() == Shape{x.dim(1), x.dim(3) / 2} && sine.shape() == cosine.shape() && x.dim(3) % 2 == 0,
          "rope: table {} for input {}", cosine.shape(), x.shape());
  const bool interleaved = pairs == RopePairs::Interleaved;
  Tensor y = Tensor::like(x);
  if (y.numel() > 0) x.device().kernels().rope({x, cosine, sine, y, interleaved, false});
  return record("rope", std::move(y), {x}, [cosine, sine, interleaved](const Tensor& dy, GradSink& sink) {
    Tensor dx = Tensor::like(dy);
    dy.device().kernels().rope({dy, cosine, sine, dx, interleaved, true});
    sink.add(0, dx);
  });
}

namespace {

Tensor equation(const std::vector<NormedPart>& parts, const Tensor& cosine, const Tensor& sine, RopePairs pairs, float eps) {
  std::vector<Tensor> normed;
  for (const NormedPart& p : parts) normed.push_back(rms_norm(p.x, p.weight, eps));
  return rope(normed.size() == 1 ? normed[0] : concat(normed, 1), cosine, sine, pairs);
}

}  // namespace

Tensor norm_rope(const std::vector<NormedPart>& parts, const Tensor& cosine, const Tensor& sine, RopePairs pairs, float eps) {
  require(!parts.empty() && parts[0].x.rank() == 4, "norm_rope needs parts [B, S, H, D]");
  const Tensor& first = parts[0].x;
  const Kernels& kernels = first.device().kernels();
  auto* fused = kernels.norm_rope;
  int64_t length = 0;
  bool recorded = false;
  for (const NormedPart& p : parts) {
    require(p.x.rank() == 4 && p.x.shape().with(1, 0) == first.shape().with(1, 0) && p.weight.shape() == Shape{p.x.dim(3)},
            "norm_rope: {} with a weight {} beside {}", p.x.shape(), p.weight.shape(), first.shape());
    length += p.x.dim(1);
    recorded = recorded || wants_grad(p.x, p.weight);
  }
  if (!fused || (recorded && !kernels.norm_rope_grad)) return equation(parts, cosine, sine, pairs, eps);

  const int64_t d = first.dim(3);
  require(d % 2 == 0 && cosine.shape() == Shape{length, d / 2} && sine.shape() == cosine.shape(),
          "norm_rope: table {} for {} tokens of {}", cosine.shape(), length, first.shape());
  Tensor y = Tensor::like(first, first.shape().with(1, length));
  int64_t at = 0;
  for (const NormedPart& p : parts) {
    const int64_t n = p.x.dim(1);
    if (p.x.numel() > 0)
      fused({p.x, p.weight, nullptr, cosine.narrowed(0, at, n), sine.narrowed(0, at, n), y.narrowed(1, at, n), eps,
             pairs == RopePairs::Interleaved});
    at += n;
  }
  if (!recorded) return y;

  std::vector<Tensor> inputs;
  std::vector<NormedPart> kept;
  for (const NormedPart& p : parts) {
    inputs.push_back(p.x);
    inputs.push_back(p.weight);
    kept.push_back({p.x.detached(), p.weight.detached()});
  }
  return record_many("norm_rope", {std::move(y)}, std::move(inputs),
                     [kept = std::move(kept), cosine, sine, pairs, eps](std::span<const Tensor> dy, GradSink& sink) {
                       int64_t start = 0;
                       for (size_t i = 0; i < kept.size(); ++i) {
                         const auto& [x, weight] = kept[i];
                         const int64_t n = x.dim(1);
                         const Tensor c = cosine.narrowed(0, start, n), s = sine.narrowed(0, start, n);
                         const Tensor dpart = dy[0].narrowed(1, start, n);
                         const Kernels& table = x.device().kernels();
                         const bool interleaved = pairs == RopePairs::Interleaved;
                         if (sink.wants(2 * i)) {
                           const Tensor dx = sink.memory_for(2 * i, x, x.shape());
                           table.norm_rope_grad({x, weight, c, s, dpart, dx, eps, interleaved});
                           sink.add(2 * i, dx);
                         }
                         if (sink.wants(2 * i + 1)) {  // that of the norm, behind the turn
                           const Tensor dn = Tensor::like(x), dweight = Tensor::like(x, weight.dtype(), weight.shape());
                           table.rope({dpart, c, s, dn, interleaved, true});
                           table.rms_norm_grad({x, weight, dn, nullptr, &dweight, eps});
                           sink.add(2 * i + 1, dweight);
                         }
                         start += n;
                       }
                     })[0];
}

QueryKey norm_rope_pair(const std::vector<NormedPair>& parts, const Tensor& cosine, const Tensor& sine, RopePairs pairs,
                        float eps) {
  require(!parts.empty() && parts[0].x.rank() == 4 && parts[0].x.dim(2) % 2 == 0, "norm_rope needs pairs [B, S, 2H, D]");
  const Tensor& first = parts[0].x;
  const int64_t heads = first.dim(2) / 2, d = first.dim(3);
  auto* fused = first.device().kernels().norm_rope;
  int64_t length = 0;
  bool recorded = false;
  for (const NormedPair& p : parts) {
    require(p.x.rank() == 4 && p.x.shape().with(1, 0) == first.shape().with(1, 0) && p.q_weight.shape() == Shape{d} &&
                p.k_weight.shape() == Shape{d},
            "norm_rope: {} with weights {} and {} beside {}", p.x.shape(), p.q_weight.shape(), p.k_weight.shape(), first.shape());
    length += p.x.dim(1);
    recorded = recorded || wants_grad(p.x, p.q_weight, p.k_weight);
  }
  if (!fused || recorded) {
    std::vector<NormedPart> queries, keys;
    for (const NormedPair& p : parts) {
      const auto halves = chunk(p.x, 2, 2);
      queries.push_back({halves[0], p.q_weight});
      keys.push_back({halves[1], p.k_weight});
    }
    return {norm_rope(queries, cosine, sine, pairs, eps), norm_rope(keys, cosine, sine, pairs, eps)};
  }
  require(d % 2 == 0 && cosine.shape() == Shape{length, d / 2} && sine.shape() == cosine.shape(),
          "norm_rope: table {} for {} tokens of {}", cosine.shape(), length, first.shape());
  const Tensor y = Tensor::like(first, first.shape().with(1, length));
  int64_t at = 0;
  for (const NormedPair& p : parts) {
    const int64_t n = p.x.dim(1);
    if (p.x.numel() > 0)
      fused({p.x, p.q_weight, &p.k_weight, cosine.narrowed(0, at, n), sine.narrowed(0, at, n), y.narrowed(1, at, n), eps,
             pairs == RopePairs::Interleaved});
    at += n;
  }
  return {y.narrowed(2, 0, heads), y.narrowed(2, heads, heads)};
}

}  // namespace flux2
