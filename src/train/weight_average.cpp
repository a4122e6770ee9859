#include "train/weight_average.h"

#include <algorithm>

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
  for (size_t i = 0; i < values_.size(); ++i) {
    const Tensor value = values_[i].second.detached();
    const Tensor& average = averages_[i].second;
    const Kernels& kernels = average.device().kernels();
    const Tensor share = Tensor::like(average);
    kernels.scale({value, share, 1 - decay, 0.0});
    kernels.scale({average, average, decay, 0.0});
    kernels.binary({Binary::Add, average, share, average});
  }
}

void WeightAverage::restore(const std::vector<std::pair<std::string, Tensor>>& saved) {
  for (const auto& [name, average] : averages_) {
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
