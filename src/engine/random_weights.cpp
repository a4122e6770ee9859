#include "engine/random_weights.h"

#include <algorithm>

#include "hub/synth_values.h"
#include "nn/load.h"

namespace flux2 {

RandomWeights::RandomWeights(std::shared_ptr<Stream> stream, const Engine& engine, int64_t stock)
    : stream_owner_(std::move(stream)),
      stream_(*stream_owner_),
      activations_(engine.activations()),
      quant_(engine.quant()),
      threads_(engine.options().threads),
      size_(stock) {
  std::vector<std::byte> bytes(static_cast<size_t>(2 * size_));
  SynthValues(0, "stock", {0.0f, 1.0f}, DType::BF16).fill(0, bytes, threads_);
  stock_ = Tensor::empty(stream_, DType::BF16, {size_});
  stream_.upload(stock_.raw(), bytes.data(), bytes.size());
}

void RandomWeights::operator()(const Parameter& p) {
  Shape shape = p.shape;
  if (p.kind == ParameterKind::Conv) shape = {p.shape[0], p.shape[2], p.shape[3], p.shape[1]};
  const Tensor values = Tensor::empty(stream_, DType::BF16, shape);
  fill(values.reshaped({shape.numel()}), sane_values(p.name, p.shape, p.kind));
  p.tensor = p.kind == ParameterKind::Vector      ? values.cast(activations_)
             : p.kind == ParameterKind::Statistic ? values.cast(DType::F32)
             : is_quantised(p, quant_)            ? quantised_on(stream_, values, quant_, threads_)
                                                  : values;
}

void RandomWeights::fill(const Tensor& flat, const ValueRange& range) {
  for (int64_t done = 0; done < flat.numel();) {
    const int64_t n = std::min(flat.numel() - done, size_ - next_);
    stream_.device().kernels().scale({stock_.narrowed(0, next_, n), flat.narrowed(0, done, n), range.deviation, range.mean});
    done += n;
    next_ = (next_ + (n + 7) / 8 * 8) % size_;  // in steps that keep addresses aligned
  }
}

}  // namespace flux2
