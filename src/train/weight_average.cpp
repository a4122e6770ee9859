#include "train/weight_average.h"

#include <algorithm>

#include "tensor/optimiser_kernels.h"

namespace flux2 {

WeightAverage::WeightAverage(std::vector<std::pair<std::string, Tensor>> values, double decay, bool warmup)
    : values_(std::move(values)), decay_(decay), warmup_(warmup) {
  for (const auto& [name, value] : values_) {
    const Tensor start = value.detached();
    averages_.emplace_back(name, start.dtype() == DType::F32 ? start.cloned() : start.cast(DType::F32));
  }
}

double WeightAverage::decay_at(int64_t step) const {
  const auto k = static_cast<double>(step);
  return warmup_ ? std::min(decay_, (1 + k) / (10 + k)) : decay_;
}

void WeightAverage::update(int64_t step) {
  const double decay = decay_at(step);
  const auto move = [](const std::vector<OptimiserTensor>& tensors, const Tensor& any) {
    any.device().kernels().optimise(
        OptimiseArgs{.rule = OptimiserRule::Interpolate, .numbers = {}, .tensors = tensors, .stream = any.stream()});
  };
  // All tensors in one call: a small model has hundreds of them, and a GPU would wait for the calls.
  std::vector<OptimiserTensor> tensors;
  for (size_t i = 0; i < values_.size(); ++i) {
    const Tensor value = values_[i].second.detached().cast(DType::F32).contiguous();
    const Tensor& average = averages_[i].second;
    OptimiserTensor t;
    t.p = average.raw();
    t.state[0] = value.raw();
    t.count = average.numel();
    t.mix = static_cast<float>(1 - decay);
    if (value.raw() == values_[i].second.raw()) tensors.push_back(t);
    else move({t}, average);  // a copy, which would be as large as the model if those of all tensors waited
  }
  if (!tensors.empty()) move(tensors, averages_.front().second);
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

void WeightAverage::exchange() {
  const bool back = !kept_.empty();
  std::vector<Tensor> kept = std::exchange(kept_, {});
  // Values that are not F32 are kept, because an average must not be rounded. All are copied first: if memory runs out, nothing
  // has changed yet.
  if (!back)
    for (const auto& [name, value] : values_)
      if (value.dtype() != DType::F32) kept.push_back(value.detached().cloned());
  for (size_t i = 0, k = 0; i < values_.size(); ++i) {
    const Tensor value = values_[i].second.detached();
    const Tensor& average = averages_[i].second;
    if (value.dtype() != DType::F32) {
      value.copy_from(back ? kept[k] : average);
      ++k;
      continue;
    }
    const Tensor own = value.cloned();
    value.copy_from(average);
    average.copy_from(own);
  }
  if (!back) kept_ = std::move(kept);
}

}  // namespace flux2
