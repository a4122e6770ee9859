#include "train/weight_average.h"

#include <algorithm>

#include "tensor/optimiser_kernels.h"

namespace flux2 {

WeightAverage::WeightAverage(std::vector<std::pair<std::string, Tensor>> values, double decay, bool warmup)
    : values_(std::move(values)), decay_(decay), warmup_(warmup) {
  for (const auto& [name, value] : values_) averages_.emplace_back(name, value.detached().cloned());
}

double WeightAverage::decay_at(int64_t step) const {
  const auto k = static_cast<double>(step);
  return warmup_ ? std::min(decay_, (1 + k) / (10 + k)) : decay_;
}

void WeightAverage::update(int64_t step) {
  const double decay = decay_at(step);
  // All tensors in one call: a small model has hundreds of them, and a GPU would wait for the calls.
  std::vector<OptimiserTensor> tensors;
  for (size_t i = 0; i < values_.size(); ++i) {
    const Tensor value = values_[i].second.detached();
    const Tensor& average = averages_[i].second;
    if (value.dtype() != DType::F32 || !value.is_contiguous()) {
      const Kernels& kernels = average.device().kernels();
      const Tensor share = Tensor::like(average);
      kernels.scale({value, share, 1 - decay, 0.0});
      kernels.scale({average, average, decay, 0.0});
      kernels.binary({Binary::Add, average, share, average});
      continue;
    }
    OptimiserTensor t;
    t.p = average.raw();
    t.state[0] = value.raw();
    t.count = average.numel();
    t.mix = static_cast<float>(1 - decay);
    tensors.push_back(t);
  }
  if (tensors.empty()) return;
  const Tensor& any = averages_.front().second;
  any.device().kernels().optimise(
      OptimiseArgs{.rule = OptimiserRule::Interpolate, .numbers = {}, .tensors = tensors, .stream = any.stream()});
}

void WeightAverage::restore(const std::vector<std::pair<std::string, Tensor>>& saved) {
  for (const auto& one : averages_) {
    const std::string& name = one.first;
    const Tensor& average = one.second;
    const auto found = std::find_if(saved.begin(), saved.end(), [&](const auto& s) { return s.first == name; });
    if (found == saved.end()) fail(ErrorCode::Incompatible, "the state has no average of {}", name);
    if (found->second.shape() != average.shape())
      fail(ErrorCode::Incompatible, "the state's average of {} has shape {}, not {}", name, found->second.shape(),
           average.shape());
    const std::vector<float> values = found->second.to_floats();
    average.stream().upload(average.raw(), values.data(), values.size() * sizeof(float));
  }
}

void WeightAverage::exchange() const {
  for (size_t i = 0; i < values_.size(); ++i) {
    const Tensor value = values_[i].second.detached();
    const Tensor kept = value.cloned();
    value.copy_from(averages_[i].second);
    averages_[i].second.copy_from(kept);
  }
}

}  // namespace flux2
