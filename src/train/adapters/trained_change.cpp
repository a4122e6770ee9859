#include "train/adapters/trained_change.h"

#include "autograd/grad.h"
#include "base/counted_random.h"

namespace flux2 {

namespace {

constexpr uint32_t kModuleDropout = 8, kRankDropout = 9;

}  // namespace

void TrainedChange::add_part(std::string role, Stream& stream, const Shape& shape, std::span<const float> values) {
  parts_.push_back({std::move(role), parameter(Tensor::from(stream, DType::F32, shape, values))});
}

Tensor TrainedChange::module_mask(const Tensor& x) const {
  if (!draws || !draws->active || dropout.module <= 0) return {};
  std::vector<float> keep;
  for (const uint64_t sample : draws->samples)
    keep.push_back(CountedRandom(draws->seed, kModuleDropout + 256 * static_cast<uint32_t>(module_index), sample).uniform(0) <
                           dropout.module
                       ? 0.0f
                       : 1.0f);
  require(static_cast<int64_t>(keep.size()) == x.dim(0), "dropout: {} samples for a batch of {}", keep.size(), x.dim(0));
  return Tensor::from(x.stream(), x.dtype(), {x.dim(0), 1, 1}, std::span<const float>(keep));
}

Tensor TrainedChange::row_mask(const Tensor& x, int64_t rows) const {
  if (!draws || !draws->active || dropout.rank <= 0) return {};
  // ΔW is one matrix for the whole batch, so the first sample decides.
  const CountedRandom random(draws->seed, kRankDropout + 256 * static_cast<uint32_t>(module_index), draws->samples.at(0));
  std::vector<float> mask(static_cast<size_t>(rows));
  for (size_t i = 0; i < mask.size(); ++i)
    mask[i] = random.uniform(i) < dropout.rank ? 0.0f : static_cast<float>(1.0 / (1.0 - dropout.rank));
  return Tensor::from(x.stream(), x.dtype(), {rows}, std::span<const float>(mask));
}

}  // namespace flux2
