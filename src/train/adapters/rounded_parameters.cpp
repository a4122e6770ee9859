#include "train/adapters/rounded_parameters.h"

#include "autograd/grad.h"

namespace flux2 {

namespace {

constexpr int64_t kAlignment = 128;  // elements: a copy of 16 bits begins where any kernel likes to read

int64_t room_of(const Tensor& value) { return (value.numel() + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

RoundedParameters::RoundedParameters(const std::vector<Tensor*>& values, DType dtype) {
  if (values.empty()) return;
  int64_t count = 0;
  for (const Tensor* value : values) count += room_of(*value);
  values_ = Tensor::like(*values[0], DType::F32, {count});
  values_.fill(0.0);
  rounded_ = Tensor::like(values_, dtype, {count});
  int64_t at = 0;
  for (Tensor* value : values) {
    require(value->dtype() == DType::F32, "a parameter with dtype {}", name_of(value->dtype()));
    const auto part_of = [&](const Tensor& all) { return all.narrowed(0, at, value->numel()).reshaped(value->shape()); };
    const Tensor moved = part_of(values_);
    moved.copy_from(value->detached());
    copies_.push_back(part_of(rounded_));
    at += room_of(*value);
    *value = parameter(moved);
  }
  refresh();
}

void RoundedParameters::refresh() const {
  if (values_.defined()) rounded_.copy_from(values_);
}

}  // namespace flux2
