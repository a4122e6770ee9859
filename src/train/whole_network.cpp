#include "train/whole_network.h"

#include <algorithm>

#include "autograd/grad.h"
#include "base/pattern.h"

namespace flux2 {

WholeNetwork::WholeNetwork(Flux2Transformer& network, Stream& stream, const WholeNetworkOptions& options) : network_(network) {
  const std::vector<Pattern> frozen(options.freeze.begin(), options.freeze.end());
  network.visit([&](const Parameter& p) {
    if (std::any_of(frozen.begin(), frozen.end(), [&](const Pattern& f) { return f.found_in(p.name); })) return;
    if (!is_float(p.tensor.dtype()))
      throw Error(ErrorCode::Incompatible, fmt::format("{} is quantised, so it cannot be trained", p.name),
                  Hint("train on the model in 16 or 32 bits, or train an adapter"));
    const Tensor value = Tensor::empty(stream, options.dtype, p.shape);
    value.copy_from(p.tensor.to(stream));
    p.tensor = parameter(value);
    parameters_.push_back({p.name, p.tensor});
  });
  check(!parameters_.empty(), "every weight of the network is frozen, so there is nothing to train");
}

TrainedModel::NormReport WholeNetwork::limit_norms(double) {
  fail(ErrorCode::InvalidArgument, "the norm of the weights can be limited for LoRA only");
}

std::vector<std::pair<std::string, Tensor>> WholeNetwork::tensors() const {
  std::vector<std::pair<std::string, Tensor>> all;
  network_.visit([&](const Parameter& p) { all.emplace_back(p.name, p.tensor.detached()); });
  return all;
}

void WholeNetwork::attach_for_sampling(Flux2Transformer& copy) const {
  copy.visit([](const Parameter& p) { p.tensor = p.tensor.detached(); });
}

}  // namespace flux2
