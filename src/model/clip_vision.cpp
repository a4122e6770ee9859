#include "model/clip_vision.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>

#include "base/error.h"
#include "model/vit_file.h"
#include "ops/arithmetic.h"
#include "ops/linear.h"
#include "ops/view.h"

namespace flux2 {

namespace {

constexpr const char* kClipTower = "vision_model.";
constexpr const char* kClipClassToken = "vision_model.embeddings.class_embedding";
constexpr const char* kClipPatches = "vision_model.embeddings.patch_embedding.weight";
constexpr const char* kClipPositions = "vision_model.embeddings.position_embedding.weight";
constexpr const char* kClipPositionIds = "vision_model.embeddings.position_ids";  // 0 … N, which older files store
constexpr const char* kClipLayers = "vision_model.encoder.layers";
constexpr const char* kClipProjection = "visual_projection";
constexpr int64_t kMostClipSide = 4096, kMostClipWidth = 1 << 16;

const char* const kClipAdvice =
    "use model.safetensors of openai/clip-vit-large-patch14, with its config.json and preprocessor_config.json beside it";

[[noreturn]] void refuse_clip(const WeightSource& weights, ErrorCode code, const std::string& what) {
  throw Error(code, fmt::format("{}: {}", weights.description(), what), kClipAdvice);
}

// {"shortest_edge": 224}, {"height": 224, "width": 224} or 224. The first is the size, the second is the crop; other forms would
// prepare images in another way.
void check_clip_size(const WeightSource& weights, const JsonBeside& preparing, const char* key, int64_t image) {
  const auto found = preparing.json.find(key);
  if (found == preparing.json.end() || found->is_null()) return;
  const auto right = [&](const Json& v) { return v.is_number() && v.get<double>() == static_cast<double>(image); };
  const bool proportions = std::string_view(key) == "size";
  const bool fits = found->is_object() ? (found->contains("shortest_edge") == proportions && !found->empty() &&
                                          std::all_of(found->begin(), found->end(), right))
                                       : right(*found);
  if (!fits)
    refuse_clip(weights, ErrorCode::Incompatible,
                fmt::format("{} of {} is {}, but the tower sees images of {}×{}", key, preparing.path.filename().string(),
                            found->dump(), image, image));
}

// A tensor of the tower that the network does not have: the file then holds something that this program would leave out.
void refuse_further_tensors(const WeightSource& weights, ClipVision& network) {
  std::set<std::string> known = {kClipPositionIds};
  network.visit([&](const Parameter& p) { known.insert(p.name); });
  for (const StoredTensor& t : weights.tensors())
    if (t.name.starts_with(kClipTower) && !known.contains(t.name))
      refuse_clip(weights, ErrorCode::Incompatible, fmt::format("the tensor {} {} does not belong to CLIP", t.name, t.shape));
}

}  // namespace

VitLayerConfig ClipConfig::layer() const {
  return {
      .hidden = hidden, .intermediate = intermediate, .heads = heads, .eps = eps, .quick_gelu = quick_gelu, .names = &kClipNames};
}

std::string ClipConfig::name() const {
  return fmt::format("CLIP vision {}/{}, {} layers of width {}, projection {}", image, patch, layers, hidden, projection);
}

const StoredTensor* clip_sign(const WeightSource& weights) { return weights.find(kClipClassToken); }

ClipConfig detect_clip(const WeightSource& weights) {
  const auto refuse = [&](ErrorCode code, const std::string& what) { refuse_clip(weights, code, what); };
  if (!clip_sign(weights))
    refuse(ErrorCode::Incompatible, fmt::format("this is not a CLIP vision tower: it has no {}", kClipClassToken));
  const auto shape_of = [&](const std::string& name, int rank, int64_t most) {
    return size_tensor(weights, name, {.rank = rank, .most = most}, kClipAdvice);
  };
  const Shape patches = shape_of(kClipPatches, 4, kMostClipWidth);
  const Shape positions = shape_of(kClipPositions, 2, int64_t{1} << 24);
  const Shape up = shape_of(fmt::format("{}.0.{}.weight", kClipLayers, kClipNames.up), 2, int64_t{1} << 20);
  const Shape projection = shape_of(std::string(kClipProjection) + ".weight", 2, kMostClipWidth);
  JsonBeside config(weights, "config.json");
  config.enter("vision_config");  // of a file with both towers
  const JsonBeside preparing(weights, "preprocessor_config.json");

  ClipConfig c;
  c.hidden = patches[0];
  c.patch = patches[2];
  c.intermediate = up[0];
  c.projection = projection[0];
  c.image = image_side(weights, {kClipPositions, positions, c.patch, kMostClipSide}, kClipAdvice);
  c.layers = count_layers(weights, kClipLayers);
  c.heads = head_count(weights, config, c.hidden, kClipAdvice);
  c.eps = static_cast<float>(config.number("layer_norm_eps", 1e-5, 0, 1));
  if (const auto act = config.json.find("hidden_act"); act != config.json.end() && !act->is_null()) {
    if (*act != "quick_gelu" && *act != "gelu")
      refuse(ErrorCode::Incompatible, fmt::format("its activation is {}; only quick_gelu and gelu are supported", act->dump()));
    c.quick_gelu = *act == "quick_gelu";
  }
  preparing.colours("image_mean", c.mean, 0);
  preparing.colours("image_std", c.deviation, 1e-6);
  constexpr double kBicubic = 3;
  if (preparing.number("resample", kBicubic, 0, 10) != kBicubic)
    refuse(ErrorCode::Incompatible, "its images are not scaled with a bicubic filter, which is the only one supported");
  check_clip_size(weights, preparing, "size", c.image);
  check_clip_size(weights, preparing, "crop_size", c.image);

  ClipVision network(c);
  check_vit(
      weights, [&](const ParameterVisitor& visitor) { network.visit(visitor); }, "the CLIP vision tower", kClipAdvice);
  refuse_further_tensors(weights, network);
  return c;
}

ClipVision::ClipVision(const ClipConfig& c)
    : config(c),
      first(c.hidden, c.eps),
      layers(static_cast<size_t>(c.layers), VitLayer(c.layer())),
      last(c.hidden, c.eps),
      projection(c.hidden, c.projection) {}

ClipVision::Features ClipVision::operator()(const Tensor& patches) const {
  const int64_t width = config.patch * config.patch * 3, count = config.patches(), hidden = config.hidden;
  check(patches.shape() == Shape({count, width}), "CLIP: patches {}, expected [{}, {}]", patches.shape(), count, width);
  const Tensor rows = linear(patches, patch_conv.reshaped({hidden, width}));
  const Tensor tokens = concat({class_token.reshaped({1, hidden}), rows}, 0) + positions;
  Tensor x = first(reshape(tokens, {1, 1 + count, hidden}));
  for (const VitLayer& layer : layers) x = layer(x);
  // The norm works on each row separately, so only the row of the class token goes through it.
  const Tensor pooled = last(contiguous(narrow(x, 1, 0, 1)));
  return {.pooled = reshape(pooled, {hidden}), .projected = reshape(projection(pooled), {config.projection})};
}

void ClipVision::visit(const ParameterVisitor& visitor) {
  const ClipConfig& c = config;
  visitor({kClipClassToken, class_token, {c.hidden}, ParameterKind::Vector, kWhole});
  visitor({kClipPatches, patch_conv, {c.hidden, 3, c.patch, c.patch}, ParameterKind::Conv, kWhole});
  visitor({kClipPositions, positions, {1 + c.patches(), c.hidden}, ParameterKind::Table, kWhole});
  first.visit("vision_model.pre_layrnorm", visitor);  // the files spell it so
  for (size_t i = 0; i < layers.size(); ++i) layers[i].visit(fmt::format("{}.{}.", kClipLayers, i), visitor);
  last.visit("vision_model.post_layernorm", visitor);
  projection.visit(kClipProjection, visitor);
}

ClipVision load_clip(const WeightSource& weights, const ClipConfig& config, Stream& stream) {
  ClipVision network(config);
  load_vit_tensors(
      weights, [&](const ParameterVisitor& visitor) { network.visit(visitor); }, stream);
  return network;
}

}  // namespace flux2
