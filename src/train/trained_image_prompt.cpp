#include "train/trained_image_prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "autograd/grad.h"
#include "base/counted_random.h"
#include "base/error.h"
#include "ops/arithmetic.h"
#include "ops/view.h"

namespace flux2 {

namespace {

constexpr uint32_t kImagePromptStart = 60;  // what the numbers of CountedRandom are for
constexpr int64_t kMeasuredVectors = 1024;
constexpr const char *kProjWeight = "image_proj.proj.weight", *kProjBias = "image_proj.proj.bias",
                     *kFeatureMean = "features.mean", *kFeatureDeviation = "features.deviation";

// The projector for standardised vectors as one for vectors as they are, or the reverse.
void change_projector(std::vector<float>& weight, std::vector<float>& bias, const FeatureStatistics& s, bool standardised) {
  const size_t inputs = s.mean.size();
  for (size_t row = 0; row < bias.size(); ++row) {
    double shift = 0;
    for (size_t i = 0; i < inputs; ++i) {
      float& w = weight[row * inputs + i];
      const double plain = standardised ? double{w} : double{w} / s.deviation[i];
      shift += plain * s.mean[i];
      w = static_cast<float>(standardised ? plain * s.deviation[i] : plain);
    }
    bias[row] = static_cast<float>(standardised ? bias[row] + shift : bias[row] - shift);
  }
}

// Weight and bias of nn.Linear are uniform within ±1/√(inputs).
std::vector<float> first_values(const std::string& name, const Shape& shape, int64_t feature_width, const CountedRandom& random) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  if (name.ends_with("norm.weight")) std::fill(values.begin(), values.end(), 1.0f);
  if (name.ends_with("norm.weight") || name.ends_with("norm.bias") || name.ends_with("v_proj.weight")) return values;
  const int64_t inputs = shape.rank() == 2 ? shape[1] : feature_width;
  const double bound = 1 / std::sqrt(static_cast<double>(inputs));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(bound * (2 * random.uniform(i) - 1));
  return values;
}

}  // namespace

ImagePromptConfig image_prompt_config(const TrainOptions& options, const Flux2Config& transformer, int64_t feature_width) {
  const bool decoupled = options.image_prompt_form != "tokens";
  ImagePromptConfig config;
  config.feature_width = feature_width;
  config.hidden = transformer.hidden;
  config.tokens = options.image_prompt_tokens.value_or(kUsualImagePromptTokens);
  config.double_blocks = decoupled ? transformer.double_blocks : 0;
  config.form = decoupled ? ImagePromptForm::Decoupled : ImagePromptForm::Tokens;
  config.feature = options.image_prompt_feature == "projected" ? ImageFeature::Projected : ImageFeature::Pooled;
  return config;
}

FeatureStatistics feature_statistics(const std::vector<float>& vectors, int64_t width) {
  const auto inputs = static_cast<size_t>(width), count = vectors.size() / inputs;
  require(count > 0, "no vectors to measure");
  std::vector<double> mean(inputs), deviation(inputs);
  for (size_t i = 0; i < vectors.size(); ++i) mean[i % inputs] += vectors[i] / static_cast<double>(count);
  for (size_t i = 0; i < vectors.size(); ++i)
    deviation[i % inputs] += std::pow(vectors[i] - mean[i % inputs], 2) / static_cast<double>(count);
  double usual = 0;
  for (double& d : deviation) usual += (d = std::sqrt(d)) / static_cast<double>(inputs);
  FeatureStatistics s;
  for (size_t i = 0; i < inputs; ++i) {
    s.mean.push_back(static_cast<float>(mean[i]));
    // Where all vectors are the same there is nothing to measure.
    s.deviation.push_back(usual > 1e-12 ? static_cast<float>(std::max(deviation[i], 0.05 * usual)) : 1.0f);
  }
  return s;
}

FeatureStatistics feature_statistics(const TrainingSet& data, uint64_t seed) {
  std::vector<float> vectors;
  int64_t width = 0, samples = 0;
  for (const BatchPlan& plan : data.epoch(seed, 0)) {
    const LoadedBatch batch = data.load(plan);
    check(!batch.features.empty(), "the data has no vectors of an image encoder");
    width = static_cast<int64_t>(batch.features.size()) / batch.size();
    vectors.insert(vectors.end(), batch.features.begin(), batch.features.end());
    if ((samples += batch.size()) >= kMeasuredVectors) break;
  }
  return feature_statistics(vectors, width);
}

TrainedImagePrompt::TrainedImagePrompt(const ImagePromptConfig& config, Stream& stream, DType activations, uint64_t seed,
                                       FeatureStatistics statistics)
    : network_(config), activations_(activations), statistics_(std::move(statistics)) {
  const auto inputs = static_cast<size_t>(config.feature_width);
  if (statistics_.mean.empty()) statistics_ = {std::vector<float>(inputs, 0.0f), std::vector<float>(inputs, 1.0f)};
  require(statistics_.mean.size() == inputs && statistics_.deviation.size() == inputs,
          "statistics of {} values for vectors of {}", statistics_.mean.size(), inputs);
  network_.visit([&](const Parameter& p) {
    const CountedRandom random(seed, kImagePromptStart, parameters_.size());
    const std::vector<float> values = first_values(p.name, p.shape, config.feature_width, random);
    p.tensor = parameter(Tensor::from(stream, DType::F32, p.shape, std::span<const float>(values)));
    parameters_.push_back({.name = p.name, .leaf = p.tensor});
  });
}

ImagePromptInputs TrainedImagePrompt::inputs(const Tensor& features) const {
  ImagePromptNetwork copy = network_;
  copy.visit([&](const Parameter& p) { p.tensor = cast(p.tensor, activations_); });
  const auto vector_of = [&](const std::vector<float>& values) {
    return Tensor::from(features.stream(), DType::F32, {1, config().feature_width}, std::span<const float>(values));
  };
  std::vector<float> scale;
  for (const float d : statistics_.deviation) scale.push_back(1 / d);
  const Tensor standardised = (features.cast(DType::F32) - vector_of(statistics_.mean)) * vector_of(scale);
  const Tensor tokens = copy.tokens(standardised.cast(activations_));
  ImagePromptInputs inputs;
  if (config().form == ImagePromptForm::Tokens) inputs.tokens = tokens;
  else inputs.keys.push_back(copy.keys(tokens));
  return inputs;
}

ImagePromptNetwork TrainedImagePrompt::plain() const {
  std::map<std::string, Tensor> values;
  for (const auto& [name, tensor] : tensors()) values[name] = tensor;
  ImagePromptNetwork copy = network_;
  Stream& stream = parameters_.front().leaf.stream();
  copy.visit([&](const Parameter& p) { p.tensor = values.at(p.name).to(stream).cast(activations_).cloned(); });
  return copy;
}

void TrainedImagePrompt::start_from(const std::filesystem::path& file, const Log& log) {
  const auto weights = open_weights(file, log);
  const ImagePromptConfig saved = detect_image_prompt(*weights);
  const auto same_shape = [&] {
    return saved.hidden == config().hidden && saved.tokens == config().tokens && saved.form == config().form &&
           saved.double_blocks == config().double_blocks && saved.feature == config().feature &&
           saved.feature_width == config().feature_width;
  };
  if (!same_shape())
    throw Error(ErrorCode::Incompatible,
                fmt::format("{} is an {} and reads vectors of {} values; this run trains an {} for vectors of {} values",
                            file.string(), saved.name(), saved.feature_width, config().name(), config().feature_width),
                Hint("change {0}, {1} or {2}, or start without a file",
                     {set_option("image_prompt_form"), set_option("image_prompt_tokens"), set_option("image_prompt_feature")}));
  const Tensor& any = parameters_.front().leaf;
  ImagePromptNetwork loaded = load_image_prompt(*weights, saved, any.stream(), DType::F32);
  std::map<std::string, Tensor> values;
  loaded.visit([&](const Parameter& p) { values[p.name] = p.tensor; });
  std::vector<float> weight = values.at(kProjWeight).to_floats(), bias = values.at(kProjBias).to_floats();
  change_projector(weight, bias, statistics_, true);
  values[kProjWeight] = Tensor::host_copy(weight.data(), DType::F32, values[kProjWeight].shape());
  values[kProjBias] = Tensor::host_copy(bias.data(), DType::F32, values[kProjBias].shape());
  restore(values);
}

TrainedModel::NormReport TrainedImagePrompt::limit_norms(double) {
  fail(ErrorCode::InvalidArgument, "the norm of the weights can be limited for LoRA only");
}

std::vector<std::pair<std::string, Tensor>> TrainedImagePrompt::tensors() const {
  std::vector<std::pair<std::string, Tensor>> all;
  std::map<std::string, std::vector<float>> projector;
  for (const TrainedParameter& p : parameters_)
    if (p.name == kProjWeight || p.name == kProjBias) projector[p.name] = p.leaf.to_floats();
  change_projector(projector[kProjWeight], projector[kProjBias], statistics_, false);
  for (const TrainedParameter& p : parameters_) {
    const auto changed = projector.find(p.name);
    all.emplace_back(p.name, changed == projector.end() ? p.leaf.detached()
                                                        : Tensor::host_copy(changed->second.data(), DType::F32, p.leaf.shape()));
  }
  return all;
}

std::vector<std::pair<std::string, Tensor>> TrainedImagePrompt::state_tensors() const {
  std::vector<std::pair<std::string, Tensor>> all;
  for (const TrainedParameter& p : parameters_) all.emplace_back(p.name, p.leaf.detached());
  const auto add = [&](const char* name, const std::vector<float>& values) {
    all.emplace_back(name, Tensor::host_copy(values.data(), DType::F32, {static_cast<int64_t>(values.size())}));
  };
  add(kFeatureMean, statistics_.mean);
  add(kFeatureDeviation, statistics_.deviation);
  return all;
}

void TrainedImagePrompt::restore_statistics(const std::map<std::string, Tensor>& values) {
  const auto take = [&](const char* name, std::vector<float>& to) {
    const auto found = values.find(name);
    if (found == values.end() || found->second.numel() != config().feature_width)
      fail(ErrorCode::Incompatible, "the saved weights have no {} of {} values", name, config().feature_width);
    to = found->second.to_floats();
  };
  take(kFeatureMean, statistics_.mean);
  take(kFeatureDeviation, statistics_.deviation);
}

}  // namespace flux2
