#include "model/vit_classifier.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "model/vit_file.h"
#include "ops/arithmetic.h"
#include "ops/linear.h"
#include "ops/view.h"

namespace flux2 {

namespace {

constexpr const char* kClassToken = "vit.embeddings.cls_token";
constexpr const char* kPositions = "vit.embeddings.position_embeddings";
constexpr const char* kPatches = "vit.embeddings.patch_embeddings.projection";
constexpr const char* kLayers = "vit.encoder.layer";
constexpr const char* kClasses = "classifier";
constexpr int64_t kMostSide = 4096, kMostWidth = 1 << 16, kMostClasses = 100'000;

const char* const kVitAdvice = "use model.safetensors of Falconsai/nsfw_image_detection, with its config.json beside it";

// {"0": "normal", "1": "nsfw"}
std::vector<std::string> labels_in(const JsonBeside& config, int64_t classes) {
  const auto found = config.json.find("id2label");
  if (found == config.json.end() || found->is_null()) {
    std::vector<std::string> labels = {"normal", "nsfw"};
    labels.resize(static_cast<size_t>(classes));
    return labels;
  }
  std::vector<std::string> labels;
  for (int64_t i = 0; i < classes; ++i) {
    const auto label = found->is_object() ? found->find(std::to_string(i)) : found->end();
    if (!found->is_object() || label == found->end() || !label->is_string())
      fail(ErrorCode::BadFile, "{}: id2label must name each of the {} classes", config.path.string(), classes);
    labels.push_back(label->get<std::string>());
  }
  return labels;
}

std::string layer_prefix(int64_t i) { return fmt::format("{}.{}.", kLayers, i); }

}  // namespace

int64_t VitConfig::label(const std::string& name) const {
  const auto found = std::find(labels.begin(), labels.end(), name);
  return found == labels.end() ? -1 : found - labels.begin();
}

std::string VitConfig::name() const {
  return fmt::format("ViT {}/{}, {} layers of width {}, {} classes", image, patch, layers, hidden, labels.size());
}

const StoredTensor* vit_sign(const WeightSource& weights) {
  return weights.find(std::string(kClasses) + ".weight") ? weights.find(kClassToken) : nullptr;
}

VitConfig detect_vit(const WeightSource& weights) {
  const auto refuse = [&](ErrorCode code, const std::string& what) {
    throw Error(code, fmt::format("{}: {}", weights.description(), what), kVitAdvice);
  };
  if (!vit_sign(weights))
    refuse(ErrorCode::Incompatible,
           fmt::format("this is not an image classifier: it has no {} and {}.weight", kClassToken, kClasses));
  const auto shape_of = [&](const std::string& name, int rank, int64_t most) {
    return size_tensor(weights, name, {.rank = rank, .most = most}, kVitAdvice);
  };
  const Shape patches = shape_of(std::string(kPatches) + ".weight", 4, kMostWidth);
  const Shape positions = shape_of(kPositions, 3, int64_t{1} << 24);
  const Shape classes = shape_of(std::string(kClasses) + ".weight", 2, kMostClasses);
  const Shape up = shape_of(layer_prefix(0) + "intermediate.dense.weight", 2, int64_t{1} << 20);
  const JsonBeside config(weights, "config.json"), preparing(weights, "preprocessor_config.json");

  VitConfig c;
  c.hidden = patches[0];
  c.patch = patches[2];
  c.intermediate = up[0];
  c.image = image_side(weights, {kPositions, positions, c.patch, kMostSide}, kVitAdvice);
  c.layers = count_layers(weights, kLayers);
  c.heads = head_count(weights, config, c.hidden, kVitAdvice);
  c.eps = static_cast<float>(config.number("layer_norm_eps", 1e-12, 0, 1));
  if (const auto act = config.json.find("hidden_act"); act != config.json.end() && *act != "gelu")
    refuse(ErrorCode::Incompatible, fmt::format("its activation is {}; only gelu is supported", act->dump()));
  c.labels = labels_in(config, classes[0]);
  preparing.colours("image_mean", c.mean, 0);
  preparing.colours("image_std", c.deviation, 1e-6);
  constexpr double kBilinear = 2;
  if (preparing.number("resample", kBilinear, 0, 10) != kBilinear)
    refuse(ErrorCode::Incompatible, "its images are not scaled with a bilinear filter, which is the only one supported");

  VitClassifier network(c);
  check_vit(
      weights, [&](const ParameterVisitor& visitor) { network.visit(visitor); }, "the classifier", kVitAdvice);
  return c;
}

VitClassifier::VitClassifier(const VitConfig& c)
    : config(c),
      layers(static_cast<size_t>(c.layers), VitLayer(c.layer())),
      norm(c.hidden, c.eps),
      classes(c.hidden, static_cast<int64_t>(c.labels.size()), true) {}

Tensor VitClassifier::operator()(const Tensor& patches) const {
  const int64_t width = config.patch * config.patch * 3, count = config.patches();
  check(patches.shape() == Shape({count, width}), "image classifier: patches {}, expected [{}, {}]", patches.shape(), count,
        width);
  const Tensor rows = linear(patches, patch_conv.reshaped({config.hidden, width})) + patch_bias;
  Tensor x = concat({class_token, reshape(rows, {1, count, config.hidden})}, 1) + positions;
  for (const VitLayer& layer : layers) x = layer(x);
  // The norm works on each row separately, so only the row of the class token goes through it.
  return reshape(classes(norm(contiguous(narrow(x, 1, 0, 1)))), {static_cast<int64_t>(config.labels.size())});
}

void VitClassifier::visit(const ParameterVisitor& visitor) {
  const VitConfig& c = config;
  visitor({kClassToken, class_token, {1, 1, c.hidden}, ParameterKind::Vector, kWhole});
  visitor({kPositions, positions, {1, 1 + c.patches(), c.hidden}, ParameterKind::Vector, kWhole});
  visitor({std::string(kPatches) + ".weight", patch_conv, {c.hidden, 3, c.patch, c.patch}, ParameterKind::Conv, kWhole});
  visitor({std::string(kPatches) + ".bias", patch_bias, {c.hidden}, ParameterKind::Vector, kWhole});
  for (size_t i = 0; i < layers.size(); ++i) layers[i].visit(layer_prefix(static_cast<int64_t>(i)), visitor);
  norm.visit("vit.layernorm", visitor);
  classes.visit(kClasses, visitor);
}

VitClassifier load_vit(const WeightSource& weights, const VitConfig& config, Stream& stream) {
  VitClassifier network(config);
  load_vit_tensors(
      weights, [&](const ParameterVisitor& visitor) { network.visit(visitor); }, stream);
  return network;
}

}  // namespace flux2
