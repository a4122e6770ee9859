#include "train/trained_autoencoder.h"

#include <algorithm>

#include "autograd/grad.h"
#include "base/pattern.h"
#include "ops/view.h"
#include "train/source_layout.h"

namespace flux2 {

TrainedAutoencoder::TrainedAutoencoder(const Vae& base, std::shared_ptr<const NamedWeights> source, Stream& stream,
                                       const TrainedAutoencoderOptions& options)
    : vae_(base), source_(std::move(source)), activations_(options.activations) {
  if (!vae_.config.has_encoder)
    fail(ErrorCode::Incompatible, "{} has only the decoder; training an autoencoder needs the encoder too",
         source_->source().description());
  const std::vector<Pattern> frozen(options.freeze.begin(), options.freeze.end());
  vae_.visit([&](const Parameter& p) {
    if (p.kind == ParameterKind::Statistic) return;
    if (std::any_of(frozen.begin(), frozen.end(), [&](const Pattern& f) { return f.found_in(p.name); })) return;
    if (!is_float(source_->dtype(p.name)))
      throw Error(ErrorCode::Incompatible, fmt::format("{} is quantised, so it cannot be trained", p.name),
                  Hint("train an autoencoder that is stored in 16 or 32 bits"));
    const Tensor value = Tensor::empty(stream, options.dtype, p.tensor.shape());
    value.copy_from(p.tensor.to(stream));
    p.tensor = parameter(value);
    parameters_.push_back({p.name, p.tensor});
  });
  check(!parameters_.empty(), "every weight of the autoencoder is frozen, so there is nothing to train");
}

Vae TrainedAutoencoder::recorded() const {
  Vae copy = vae_;
  copy.visit([&](const Parameter& p) {
    if (p.kind != ParameterKind::Statistic && wants_grad(p.tensor)) p.tensor = cast(p.tensor, activations_);
  });
  return copy;
}

Vae TrainedAutoencoder::plain() const {
  Vae copy = vae_;
  copy.visit([&](const Parameter& p) {
    const bool trained = wants_grad(p.tensor);
    p.tensor = p.tensor.detached();
    if (trained) p.tensor = p.tensor.cast(activations_);
  });
  return copy;
}

TrainedModel::NormReport TrainedAutoencoder::limit_norms(double) {
  fail(ErrorCode::InvalidArgument, "the norm of the weights can be limited for LoRA only");
}

std::vector<std::pair<std::string, Tensor>> TrainedAutoencoder::tensors() const {
  Vae copy = vae_;
  return in_source_layout(*source_, file_tensors([&](const ParameterVisitor& v) { copy.visit(v); }));
}

NamedTensors TrainedAutoencoder::weights() const {
  NamedTensors all;
  for (const TrainedParameter& p : parameters_) all.emplace_back(p.name, p.leaf.detached());
  return all;
}

bool TrainedAutoencoder::trains_encoder() const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [](const TrainedParameter& p) { return p.name.starts_with("encoder."); });
}

void TrainedAutoencoder::set_statistics(const std::vector<double>& mean, const std::vector<double>& variance) {
  Stream& stream = vae_.running_mean.stream();
  vae_.running_mean = Tensor::from<double>(stream, DType::F32, vae_.running_mean.shape(), mean);
  vae_.running_var = Tensor::from<double>(stream, DType::F32, vae_.running_var.shape(), variance);
}

}  // namespace flux2
