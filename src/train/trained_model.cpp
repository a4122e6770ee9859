#include "train/trained_model.h"

namespace flux2 {

int64_t TrainedModel::parameter_count() const {
  int64_t count = 0;
  for (const TrainedParameter& p : parameters_) count += p.leaf.numel();
  return count;
}

void TrainedModel::restore(const std::map<std::string, Tensor>& values) {
  for (const TrainedParameter& p : parameters_) {
    const auto found = values.find(p.name);
    if (found == values.end()) fail(ErrorCode::Incompatible, "the saved weights have no tensor {}", p.name);
    if (found->second.shape() != p.leaf.shape())
      fail(ErrorCode::Incompatible, "the saved weights have {} with shape {}, this run with {}", p.name, found->second.shape(),
           p.leaf.shape());
    const std::vector<float> floats = found->second.to_floats();
    p.leaf.detached().copy_from(Tensor::from(p.leaf.stream(), DType::F32, p.leaf.shape(), std::span<const float>(floats)));
  }
  refresh();
}

}  // namespace flux2
