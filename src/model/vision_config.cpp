#include "model/vision_config.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "nn/load.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr const char* kPatches = "vision_tower.patch_conv.weight";
constexpr const char* kMerger = "multi_modal_projector.patch_merger.merging_layer.weight";

// What config.json beside the weights says about the model; empty if there is none.
struct Described {
  fs::path path;
  Json model = Json::object();

  explicit Described(const NamedWeights& weights) {
    for (const StoredTensor& t : weights.source().tensors()) {
      if (!t.file) continue;
      path = t.file->path().parent_path() / "config.json";
      std::error_code unreadable;
      if (fs::is_regular_file(path, unreadable)) model = read_model_json(path);
      if (!model.is_object()) fail(ErrorCode::BadFile, "{}: expected an object, found {}", path.string(), model.type_name());
      break;
    }
  }

  const Json* find(const Json& object, const char* key) const {
    const auto found = object.find(key);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  const Json* vision(const char* key) const {
    const Json* inside = find(model, "vision_config");
    if (!inside || !inside->is_object()) return nullptr;
    if (const Json* value = find(*inside, key)) return value;
    const Json* rope = find(*inside, "rope_parameters");
    return rope && rope->is_object() ? find(*rope, key) : nullptr;
  }
  template <class T>
  bool take(T& target, const char* key, double low, double high) const {
    const Json* value = vision(key);
    if (!value) return false;
    const double number = value->is_number() ? value->get<double>() : NAN;
    if (!(number >= low && number <= high))
      fail(ErrorCode::BadFile, "{}: vision_config.{} must be a number from {} to {}", path.string(), key, low, high);
    target = static_cast<T>(number);
    return true;
  }
};

}  // namespace

bool has_vision(const NamedWeights& weights) { return weights.has(kPatches) && weights.has(kMerger); }

VisionConfig detect_vision(const NamedWeights& weights, const DecoderConfig& text) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::Incompatible, fmt::format("{} {}", weights.source().description(), what),
                "use a text encoder that has one: the folder text_encoder of FLUX.2-dev, or Mistral-Small-3.2-24B-Instruct-2506");
  };
  if (!has_vision(weights)) refuse("cannot look at images: it holds a language model without a vision tower");
  VisionConfig c;
  const Shape patches = config_shape(weights, kPatches, 4), merger = config_shape(weights, kMerger, 2);
  c.hidden = patches[0];
  c.patch = patches[2];
  c.merge = std::llround(std::sqrt(static_cast<double>(merger[1]) / static_cast<double>(c.hidden)));
  c.intermediate = config_shape(weights, "vision_tower.transformer.layers.0.feed_forward.gate_proj.weight", 2)[0];
  c.layers = 0;
  while (weights.has(fmt::format("vision_tower.transformer.layers.{}.attention_norm.weight", c.layers))) ++c.layers;
  c.text_hidden = text.hidden;
  c.projector_eps = text.norm_eps;

  const Described described(weights);
  int64_t head_dim = 64;  // no tensor has this width
  if (!described.take(head_dim, "head_dim", 4, 1024) && described.take(c.heads, "num_attention_heads", 1, 1024))
    head_dim = c.hidden / c.heads;
  c.heads = head_dim > 0 ? c.hidden / head_dim : 0;
  described.take(c.image, "image_size", 1, 16384);
  described.take(c.rope_theta, "rope_theta", 1, 1e12);
  if (c.heads < 1 || c.heads * head_dim != c.hidden || head_dim % 4 != 0)
    refuse(fmt::format("has a vision tower of width {}, which does not form heads of width {}", c.hidden, head_dim));
  if (patches[1] != 3 || patches[2] != patches[3])
    refuse(fmt::format("has a vision tower whose patches have the shape {}", patches));
  if (c.merge < 1 || c.merge * c.merge * c.hidden != merger[1])
    refuse(fmt::format("has a patch merger of the shape {} for a tower of width {}", merger, c.hidden));
  const Json* layer = described.find(described.model, "vision_feature_layer");
  if (layer && *layer != Json(-1)) refuse("reads another layer of its vision tower than the last one, which is not supported");
  return c;
}

}  // namespace flux2
