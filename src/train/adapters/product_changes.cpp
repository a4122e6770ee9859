#include <algorithm>
#include <cmath>

#include "base/counted_random.h"
#include "ops/arithmetic.h"
#include "ops/linear.h"
#include "ops/view.h"
#include "train/adapters/trained_change.h"

namespace flux2 {

namespace {

// The starting values of a module's tensors, one after the other from one sequence of random numbers.
class StartValues {
 public:
  explicit StartValues(const ChangeStart& start) : random_(start.seed, 5, start.module_index) {}

  std::vector<float> normal(int64_t count, double deviation) {
    next_ = (next_ + 3) / 4 * 4;  // normals come in blocks of four
    std::vector<float> values(static_cast<size_t>(count));
    for (float& v : values) v = static_cast<float>(deviation * random_.normal(next_++));
    return values;
  }
  std::vector<float> uniform(int64_t count, double bound) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& v : values) v = static_cast<float>((2 * random_.uniform(next_++) - 1) * bound);
    return values;
  }

 private:
  CountedRandom random_;
  uint64_t next_ = 0;
};

std::vector<float> zeros(int64_t count) { return std::vector<float>(static_cast<size_t>(count)); }

Tensor matrix_product(const Tensor& a, const Tensor& b) { return linear(a, contiguous(permute(b, {1, 0}))); }

class LohaChange final : public TrainedChange {
 public:
  LohaChange(const Linear& layer, Stream& stream, int64_t dim, double alpha, const ChangeStart& start) {
    module_index = start.module_index;
    alpha_ = alpha == 0 ? static_cast<double>(dim) : alpha;
    scale_ = alpha_ / static_cast<double>(dim);
    StartValues values(start);
    add_part("hada_w1_a", stream, {layer.out, dim}, values.normal(layer.out * dim, 0.1));
    add_part("hada_w1_b", stream, {dim, layer.in}, values.normal(dim * layer.in, 1.0));
    add_part("hada_w2_a", stream, {layer.out, dim}, zeros(layer.out * dim));
    add_part("hada_w2_b", stream, {dim, layer.in}, values.normal(dim * layer.in, 1.0));
  }

  Tensor apply(const Linear& layer, const Tensor& x, Values /*values*/) const override {
    const Tensor delta = scale_ * (matrix_product(part(0), part(1)) * matrix_product(part(2), part(3)));
    Tensor change = linear(x, cast(delta, x.dtype()));
    if (const Tensor mask = row_mask(x, layer.out); mask.defined()) change = change * mask;
    if (const Tensor mask = module_mask(x); mask.defined()) change = change * mask;
    return lora_linear(x, layer.weight, layer.bias, layer.adapters) + change;
  }

  std::shared_ptr<TrainedChange> for_sampling() const override { return sampling_copy(*this); }

 private:
  double scale_;
};

class LokrChange final : public TrainedChange {
 public:
  LokrChange(const Linear& layer, Stream& stream, int64_t dim, double alpha, int64_t factor, const ChangeStart& start)
      : in_(lokr_factors(layer.in, factor)), out_(lokr_factors(layer.out, factor)) {
    module_index = start.module_index;
    StartValues values(start);
    const auto bound = [](int64_t fan_in) { return 1 / std::sqrt(static_cast<double>(fan_in)); };
    add_part("lokr_w1", stream, {out_.first, in_.first}, values.uniform(out_.first * in_.first, bound(in_.first)));
    if (2 * dim < std::max(out_.second, in_.second)) {
      alpha_ = alpha == 0 ? static_cast<double>(dim) : alpha;
      scale_ = alpha_ / static_cast<double>(dim);
      add_part("lokr_w2_a", stream, {out_.second, dim}, values.uniform(out_.second * dim, bound(dim)));
      add_part("lokr_w2_b", stream, {dim, in_.second}, zeros(dim * in_.second));
    } else {
      alpha_ = static_cast<double>(dim);
      add_part("lokr_w2", stream, {out_.second, in_.second}, zeros(out_.second * in_.second));
    }
  }

  // kron(w1, w2) is never formed: x as [rows, in.first, in.second], multiplied by w2, then by w1.
  Tensor apply(const Linear& layer, const Tensor& x, Values /*values*/) const override {
    const Tensor w1 = cast(part(0), x.dtype());
    const Tensor w2 = cast(parts_.size() == 2 ? part(1) : matrix_product(part(1), part(2)), x.dtype());
    const int64_t rows = x.numel() / layer.in;
    const Tensor inner = linear(reshape(contiguous(x), {rows, in_.first, in_.second}), w2);  // [rows, in.first, out.second]
    const Tensor turned = linear(contiguous(permute(inner, {0, 2, 1})), w1);                 // [rows, out.second, out.first]
    Tensor change = scale_ * reshape(contiguous(permute(turned, {0, 2, 1})), x.shape().with(-1, layer.out));
    if (const Tensor mask = row_mask(x, layer.out); mask.defined()) change = change * mask;
    if (const Tensor mask = module_mask(x); mask.defined()) change = change * mask;
    return lora_linear(x, layer.weight, layer.bias, layer.adapters) + change;
  }

  std::shared_ptr<TrainedChange> for_sampling() const override { return sampling_copy(*this); }

 private:
  FactorPair in_, out_;
  double scale_ = 1;
};

}  // namespace

FactorPair lokr_factors(int64_t dimension, int64_t factor) {
  if (factor > 0 && dimension % factor == 0) return {std::min(factor, dimension / factor), std::max(factor, dimension / factor)};
  FactorPair best{1, dimension};
  for (int64_t first = 1; first * first <= dimension && (factor < 0 || first <= factor); ++first)
    if (dimension % first == 0) best = {first, dimension / first};
  return best;
}

std::shared_ptr<TrainedChange> new_loha(const Linear& layer, Stream& stream, int64_t dim, double alpha,
                                        const ChangeStart& start) {
  return std::make_shared<LohaChange>(layer, stream, dim, alpha, start);
}

std::shared_ptr<TrainedChange> new_lokr(const Linear& layer, Stream& stream, int64_t dim, double alpha, int64_t factor,
                                        const ChangeStart& start) {
  return std::make_shared<LokrChange>(layer, stream, dim, alpha, factor, start);
}

}  // namespace flux2
