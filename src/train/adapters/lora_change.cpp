#include <cmath>

#include "autograd/grad.h"
#include "base/counted_random.h"
#include "base/thread_pool.h"
#include "ops/arithmetic.h"
#include "ops/linear.h"
#include "ops/view.h"
#include "train/adapters/trained_change.h"

namespace flux2 {

namespace {

constexpr uint32_t kStart = 5, kRankMask = 9, kElementMask = 10;

class LoraChange final : public TrainedChange {
 public:
  LoraChange(const Linear& layer, Stream& stream, const LoraShape& shape, const ChangeStart& start) : dim_(shape.dim) {
    module_index = start.module_index;
    alpha_ = shape.alpha == 0 ? static_cast<double>(shape.dim) : shape.alpha;
    const auto dim = static_cast<double>(dim_);
    // Readers of the file multiply by alpha / dim, so the stored alpha includes the other factor.
    if (shape.rank_stabilised) alpha_ *= std::sqrt(dim);
    scale_ = alpha_ / dim;
    std::vector<float> down(static_cast<size_t>(dim_ * layer.in));
    const CountedRandom random(start.seed, kStart, start.module_index);
    const double bound = 1 / std::sqrt(static_cast<double>(layer.in));
    for (size_t i = 0; i < down.size(); ++i) down[i] = static_cast<float>((2 * random.uniform(i) - 1) * bound);
    add_part("lora_down.weight", stream, {dim_, layer.in}, down);
    const std::vector<float> zeros(static_cast<size_t>(layer.out * dim_));
    add_part("lora_up.weight", stream, {layer.out, dim_}, zeros);
    if (!shape.dora) return;
    weight_squares_ = row_squares(layer);
    std::vector<float> magnitude;
    for (const double s : weight_squares_) magnitude.push_back(static_cast<float>(std::sqrt(s)));
    add_part("dora_scale", stream, {layer.out, 1}, magnitude);
    refresh(layer);
  }

  Tensor apply(const Linear& layer, const Tensor& x, Values values) const override {
    const Lora own{.down = part(0), .up = part(1), .scale = scale_, .rounded_down = rounded(0), .rounded_up = rounded(1)};
    if (parts_.size() == 2 && !drops()) {
      std::vector<Lora> all = layer.adapters;
      all.push_back(own);
      return lora_linear(x, layer.weight, layer.bias, all, values);
    }
    const Tensor base = lora_linear(x, layer.weight, layer.bias, layer.adapters);
    Tensor inner = linear(x, cast(own.down, x.dtype()));
    if (const Tensor mask = inner_mask(x); mask.defined()) inner = inner * mask;
    Tensor change = scale_ * linear(inner, cast(own.up, x.dtype()));
    if (const Tensor mask = module_mask(x); mask.defined()) change = change * mask;
    const Tensor y = base + change;
    if (parts_.size() == 2) return y;
    return y * cast(reshape(part(2), {layer.out}) * inverse_norms_, x.dtype());
  }

  // ‖w + s·b·A‖² for each row w of W and b of up: ‖w‖² + 2s·b·(A w) + s²·b·(A Aᵀ)·bᵀ. W is read by one product.
  void refresh(const Linear& layer) override {
    if (parts_.size() == 2) return;
    const Tensor down = part(0).detached(), up = part(1).detached();
    const std::vector<float> projected = linear(down, layer.weight).to_floats();  // [r, out]
    const std::vector<float> gram = linear(down, down).to_floats();               // [r, r]
    const std::vector<float> b = up.to_floats();
    std::vector<float> inverse(static_cast<size_t>(layer.out));
    const auto r = static_cast<size_t>(dim_), out = static_cast<size_t>(layer.out);
    for (size_t o = 0; o < out; ++o) {
      double cross = 0, square = 0;
      for (size_t i = 0; i < r; ++i) {
        cross += double{b[o * r + i]} * projected[i * out + o];
        double row = 0;
        for (size_t j = 0; j < r; ++j) row += double{gram[i * r + j]} * b[o * r + j];
        square += row * b[o * r + i];
      }
      inverse[o] = static_cast<float>(1 / std::sqrt(weight_squares_[o] + 2 * scale_ * cross + scale_ * scale_ * square));
    }
    inverse_norms_ = Tensor::from(down.stream(), DType::F32, {layer.out}, std::span<const float>(inverse));
  }

  // ‖B·A‖² = trace((BᵀB)(A·Aᵀ)), which needs no matrix larger than r × r.
  std::optional<LimitedNorm> limit_norm(double limit) override {
    const Tensor down = part(0).detached(), up = part(1).detached();
    const std::vector<float> a = linear(down, down).to_floats();
    const Tensor turned = permute(up, {1, 0}).contiguous();
    const std::vector<float> b = linear(turned, turned).to_floats();
    double trace = 0;
    for (size_t i = 0; i < a.size(); ++i) trace += double{a[i]} * b[i];
    const double norm = std::max(scale_ * std::sqrt(std::max(trace, 0.0)), limit / 2);
    const double ratio = std::min(norm, limit) / norm;
    if (ratio != 1)
      for (const Tensor& matrix : {down, up}) matrix.device().kernels().scale({matrix, matrix, std::sqrt(ratio), 0.0});
    return LimitedNorm{norm * ratio, ratio != 1};
  }

  std::shared_ptr<TrainedChange> for_sampling() const override { return sampling_copy(*this); }

 private:
  bool drops() const { return draws && draws->active && dropout.any(); }

  // Element and rank dropout as one factor of x · downᵀ [B, S, r].
  Tensor inner_mask(const Tensor& x) const {
    if (!drops() || (dropout.element <= 0 && dropout.rank <= 0)) return {};
    const int64_t batch = x.dim(0), tokens = x.dim(1);
    std::vector<float> mask(static_cast<size_t>(batch * tokens * dim_), 1.0f);
    const auto per_sample = static_cast<size_t>(tokens * dim_), r = static_cast<size_t>(dim_);
    const auto purpose = [&](uint32_t kind) { return kind + 256 * static_cast<uint32_t>(module_index); };
    for (size_t s = 0; s < static_cast<size_t>(batch); ++s) {
      const std::span<float> own = std::span(mask).subspan(s * per_sample, per_sample);
      if (dropout.element > 0) {
        const CountedRandom random(draws->seed, purpose(kElementMask), draws->samples.at(s));
        for (size_t i = 0; i < own.size(); ++i)
          own[i] = random.uniform(i) < dropout.element ? 0.0f : static_cast<float>(1 / (1 - dropout.element));
      }
      if (dropout.rank > 0) {
        const CountedRandom random(draws->seed, purpose(kRankMask), draws->samples.at(s));
        for (size_t k = 0; k < r; ++k) {
          const float factor = random.uniform(k) > dropout.rank ? static_cast<float>(1 / (1 - dropout.rank)) : 0.0f;
          for (size_t i = k; i < own.size(); i += r) own[i] *= factor;
        }
      }
    }
    return Tensor::from(x.stream(), x.dtype(), {batch, tokens, dim_}, std::span<const float>(mask));
  }

  static std::vector<double> row_squares(const Linear& layer) {
    const std::vector<float> w = layer.weight.to_floats();
    std::vector<double> squares(static_cast<size_t>(layer.out));
    const auto in = static_cast<size_t>(layer.in);
    for (size_t o = 0; o < squares.size(); ++o)
      for (size_t i = 0; i < in; ++i) squares[o] += double{w[o * in + i]} * w[o * in + i];
    return squares;
  }

  int64_t dim_;
  double scale_ = 1;
  std::vector<double> weight_squares_;  // of DoRA: ‖w‖² of each row of W
  Tensor inverse_norms_;                // of DoRA: 1 / ‖W + ΔW‖ by rows, F32 [out]
};

}  // namespace

std::shared_ptr<TrainedChange> new_lora(const Linear& layer, Stream& stream, const LoraShape& shape, const ChangeStart& start) {
  return std::make_shared<LoraChange>(layer, stream, shape, start);
}

}  // namespace flux2
