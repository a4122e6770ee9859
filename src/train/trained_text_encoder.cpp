#include "train/trained_text_encoder.h"

#include <algorithm>

#include "autograd/grad.h"
#include "base/pattern.h"
#include "ops/view.h"
#include "train/source_layout.h"

namespace flux2 {

TrainedTextEncoder::TrainedTextEncoder(std::unique_ptr<TrainedModel> model, const TextEncoder& base,
                                       std::shared_ptr<const NamedWeights> source, Stream& stream,
                                       const TrainedTextEncoderOptions& options)
    : model_(std::move(model)), encoder_(base), source_(std::move(source)), activations_(options.activations) {
  if (encoder_.schedule) fail(ErrorCode::Incompatible, "the text encoder does not fit into memory, so it cannot be trained");
  parameters_ = model_->parameters();
  const std::vector<Pattern> frozen(options.freeze.begin(), options.freeze.end());
  encoder_.visit([&](const Parameter& p) {
    const std::string name = "text_encoder." + p.name;
    if (std::any_of(frozen.begin(), frozen.end(), [&](const Pattern& f) { return f.found_in(name); })) return;
    if (!is_float(p.tensor.dtype()))
      throw Error(ErrorCode::Incompatible, fmt::format("{} is quantised, so it cannot be trained", p.name),
                  Hint("train a text encoder that is stored in 16 or 32 bits"));
    const Tensor value = Tensor::empty(stream, options.dtype, p.tensor.shape());
    value.copy_from(p.tensor.to(stream));
    p.tensor = parameter(value);
    parameters_.push_back({.name = name, .leaf = p.tensor, .is_encoder = true});
    ++encoder_parameters_;
  });
  check(encoder_parameters_ > 0, "every weight of the text encoder is frozen; train the transformer alone");
}

Tensor TrainedTextEncoder::states(const Tensor& ids, const Tensor& mask) const {
  TextEncoder copy = encoder_;
  copy.visit([&](const Parameter& p) {
    if (wants_grad(p.tensor) && p.kind != ParameterKind::Table) p.tensor = cast(p.tensor, activations_);
  });
  return copy(ids, mask, activations_);
}

TextEncoder TrainedTextEncoder::plain() const {
  TextEncoder copy = encoder_;
  copy.visit([&](const Parameter& p) {
    const bool trained = wants_grad(p.tensor);
    p.tensor = p.tensor.detached();
    if (trained) p.tensor = p.tensor.cast(activations_).cloned();  // later steps must not change it
  });
  return copy;
}

std::vector<TrainedModel::Companion> TrainedTextEncoder::companions() const {
  TextEncoder copy = encoder_;
  return {{"-text_encoder", in_source_layout(*source_, file_tensors([&](const ParameterVisitor& v) { copy.visit(v); }))}};
}

std::vector<std::pair<std::string, Tensor>> TrainedTextEncoder::state_tensors() const {
  std::vector<std::pair<std::string, Tensor>> all = model_->state_tensors();
  for (const TrainedParameter& p : parameters_)
    if (p.is_encoder) all.emplace_back(p.name, p.leaf.detached());
  return all;
}

}  // namespace flux2
