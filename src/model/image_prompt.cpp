#include "model/image_prompt.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "ops/view.h"

namespace flux2 {

namespace {

constexpr const char* kPromptPrefix = "image_proj.";
constexpr int64_t kMostPromptWidth = 1 << 16, kMostPromptTokens = 1024, kMostPromptBlocks = 1000;
constexpr float kPromptNormEps = 1e-5f;
constexpr size_t kMostPromptFaults = 10;

const char* const kPromptFileAdvice = "use a file that was trained for FLUX.2 as an image prompt";

// Of the projector's names, which others call differently; nothing if the file has no projector.
std::optional<std::string> prompt_prefix_in(const WeightSource& weights) {
  for (const char* prefix : {kPromptPrefix, "image_proj_model.", ""}) {
    const std::string p = prefix;
    const bool is_there = weights.find(p + "proj.weight") && weights.find(p + "norm.weight");
    if (is_there && (!p.empty() || weights.tensors().size() == 4)) return p;
  }
  return std::nullopt;
}

std::string prompt_block_name(int64_t block, const char* which) {
  return fmt::format("double_blocks.{}.ip_adapter.{}_proj", block, which);
}

// The tensor of a file that has this canonical name.
std::string prompt_name_in_file(const std::string& name, const std::string& prefix) {
  return name.starts_with(kPromptPrefix) ? prefix + name.substr(std::string(kPromptPrefix).size()) : name;
}

[[noreturn]] void refuse_prompt_file(const WeightSource& weights, ErrorCode code, const std::string& what) {
  throw Error(code, fmt::format("{}: {}", weights.description(), what), kPromptFileAdvice);
}

// What the file says about itself; null if it says nothing.
Json stated_config(const WeightSource& weights) {
  const auto found = weights.metadata().find(kImagePromptMetadata);
  if (found == weights.metadata().end()) return nullptr;
  const Json stated =
      in_context(fmt::format("{}: {}", weights.description(), kImagePromptMetadata), [&] { return parse_json(found->second); });
  if (!stated.is_object())
    refuse_prompt_file(weights, ErrorCode::BadFile, fmt::format("{} is not an object", kImagePromptMetadata));
  return stated;
}

std::string stated_text(const WeightSource& weights, const Json& stated, const char* key, const std::string& otherwise) {
  if (stated.is_null() || !stated.contains(key)) return otherwise;
  if (!stated[key].is_string())
    refuse_prompt_file(weights, ErrorCode::BadFile, fmt::format("{} in {} is not a text", key, kImagePromptMetadata));
  return stated[key].get<std::string>();
}

const char* name_of(ImagePromptForm form) { return form == ImagePromptForm::Tokens ? "tokens" : "decoupled"; }
const char* name_of(ImageFeature feature) { return feature == ImageFeature::Pooled ? "pooled" : "projected"; }

ImageFeature feature_of(const WeightSource& weights, const Json& stated, int64_t width) {
  constexpr int64_t kClipHidden = 1024, kClipProjection = 768;
  const std::string named = stated_text(weights, stated, "feature",
                                        width == kClipHidden       ? "pooled"
                                        : width == kClipProjection ? "projected"
                                                                   : "");
  if (named == "pooled") return ImageFeature::Pooled;
  if (named == "projected") return ImageFeature::Projected;
  if (!named.empty())
    refuse_prompt_file(weights, ErrorCode::Incompatible,
                       fmt::format("it reads the feature \"{}\" of an image encoder; pooled and projected are supported", named));
  refuse_prompt_file(
      weights, ErrorCode::Incompatible,
      fmt::format("it reads vectors of {} values and does not say of which encoder; {} and {} are known (CLIP ViT-L/14)", width,
                  kClipHidden, kClipProjection));
}

void check_prompt_tensors(const WeightSource& weights, const ImagePromptConfig& config, const std::string& prefix) {
  std::vector<std::string> faults;
  std::set<std::string> known;
  ImagePromptNetwork(config).visit([&](const Parameter& p) {
    const std::string name = prompt_name_in_file(p.name, prefix);
    known.insert(name);
    const StoredTensor* t = weights.find(name);
    if (!t) faults.push_back(fmt::format("{} {} is missing", name, p.shape));
    else if (t->shape != p.shape) faults.push_back(fmt::format("{} is {}, expected {}", name, t->shape, p.shape));
    else if (!t->dtype || !is_float(*t->dtype)) faults.push_back(fmt::format("{} has the type {}", name, t->dtype_name));
  });
  for (const StoredTensor& t : weights.tensors())
    if (!known.contains(t.name)) faults.push_back(fmt::format("{} is not known", t.name));
  if (faults.empty()) return;
  const size_t shown = std::min(faults.size(), kMostPromptFaults), more = faults.size() - shown;
  faults.resize(shown);
  refuse_prompt_file(weights, ErrorCode::BadFile,
                     fmt::format("the image-prompt adapter is damaged: {}{}", fmt::join(faults, "; "),
                                 more ? fmt::format("; and {} more", more) : ""));
}

}  // namespace

std::string ImagePromptConfig::metadata() const {
  return Json{{"encoder", encoder}, {"feature", name_of(feature)}, {"tokens", tokens}, {"form", name_of(form)}}.dump();
}

std::string ImagePromptConfig::name() const {
  return fmt::format("image prompt of {} tokens, form {}, for a width of {}", tokens, name_of(form), hidden);
}

const StoredTensor* image_prompt_sign(const WeightSource& weights) {
  const auto prefix = prompt_prefix_in(weights);
  return prefix ? weights.find(*prefix + "proj.weight") : nullptr;
}

std::string flux1_image_prompt(const WeightSource& weights) {
  const auto all_there = [&](std::initializer_list<const char*> names) {
    return std::all_of(names.begin(), names.end(), [&](const char* name) { return weights.find(name) != nullptr; });
  };
  if (all_there({"redux_up.weight", "redux_up.bias", "redux_down.weight", "redux_down.bias"})) return "FLUX.1 Redux";
  const bool xlabs = weights.find("ip_adapter_proj_model.proj.weight") ||
                     weights.find("double_blocks.0.processor.ip_adapter_double_stream_k_proj.weight");
  return xlabs ? "an IP-Adapter for FLUX.1" : "";
}

ImagePromptConfig detect_image_prompt(const WeightSource& weights) {
  if (const std::string older = flux1_image_prompt(weights); !older.empty())
    throw Error(ErrorCode::Incompatible, fmt::format("{}: this is {}; it does not fit FLUX.2", weights.description(), older),
                kPromptFileAdvice);
  const StoredTensor* proj = image_prompt_sign(weights);
  if (!proj)
    refuse_prompt_file(
        weights, ErrorCode::Incompatible,
        fmt::format("this is not an image-prompt adapter: it has no {0}proj.weight and {0}norm.weight", kPromptPrefix));
  const std::string prefix = *prompt_prefix_in(weights);
  const StoredTensor& norm = *weights.find(prefix + "norm.weight");
  const bool norm_fits = norm.shape.rank() == 1 && norm.shape[0] >= 1 && norm.shape[0] <= kMostPromptWidth;
  if (!norm_fits) refuse_prompt_file(weights, ErrorCode::BadFile, fmt::format("{} has the shape {}", norm.name, norm.shape));
  ImagePromptConfig c;
  c.hidden = norm.shape[0];
  const bool proj_fits = proj->shape.rank() == 2 && proj->shape[1] >= 1 && proj->shape[1] <= kMostPromptWidth &&
                         proj->shape[0] >= c.hidden && proj->shape[0] <= kMostPromptTokens * c.hidden &&
                         proj->shape[0] % c.hidden == 0;
  if (!proj_fits)
    refuse_prompt_file(weights, ErrorCode::BadFile,
                       fmt::format("{} has the shape {}, which is not [tokens · {}, width of the encoder's vector]", proj->name,
                                   proj->shape, c.hidden));
  if (c.hidden % Flux2Config::kHeadDim != 0)
    refuse_prompt_file(
        weights, ErrorCode::Incompatible,
        fmt::format("it was made for a width of {}, which is not a multiple of {}", c.hidden, Flux2Config::kHeadDim));
  c.tokens = proj->shape[0] / c.hidden;
  c.feature_width = proj->shape[1];
  while (c.double_blocks < kMostPromptBlocks && weights.find(prompt_block_name(c.double_blocks, "k") + ".weight"))
    ++c.double_blocks;
  c.form = c.double_blocks > 0 ? ImagePromptForm::Decoupled : ImagePromptForm::Tokens;
  const Json stated = stated_config(weights);
  c.feature = feature_of(weights, stated, c.feature_width);
  c.encoder = stated_text(weights, stated, "encoder", c.encoder);
  if (const std::string form = stated_text(weights, stated, "form", name_of(c.form)); form != name_of(c.form))
    refuse_prompt_file(weights, ErrorCode::BadFile,
                       fmt::format("it says that its form is {}, but its tensors are those of {}", form, name_of(c.form)));
  check_prompt_tensors(weights, c, prefix);
  return c;
}

void check_image_prompt(const ImagePromptConfig& adapter, const Flux2Config& transformer) {
  const bool fits = adapter.hidden == transformer.hidden &&
                    (adapter.form == ImagePromptForm::Tokens || adapter.double_blocks == transformer.double_blocks);
  if (fits) return;
  const std::string blocks =
      adapter.form == ImagePromptForm::Tokens ? "" : fmt::format(" and {} double blocks", adapter.double_blocks);
  throw Error(ErrorCode::Incompatible,
              fmt::format("this image-prompt adapter was trained for a transformer of width {}{}; this model has width {} and {} "
                          "double blocks",
                          adapter.hidden, blocks, transformer.hidden, transformer.double_blocks),
              "use an adapter that was trained for this model");
}

ImagePromptNetwork::ImagePromptNetwork(const ImagePromptConfig& c)
    : config(c),
      proj(c.feature_width, c.tokens * c.hidden, true),
      norm(c.hidden, kPromptNormEps),
      blocks(static_cast<size_t>(c.form == ImagePromptForm::Decoupled ? c.double_blocks : 0),
             BlockKeys{Linear(c.hidden, c.hidden), Linear(c.hidden, c.hidden)}) {}

Tensor ImagePromptNetwork::tokens(const Tensor& features) const {
  check(features.rank() == 2 && features.dim(1) == config.feature_width, "image prompt: vectors {}, expected [B, {}]",
        features.shape(), config.feature_width);
  return norm(reshape(proj(features), {features.dim(0), config.tokens, config.hidden}));
}

std::vector<KeyValue> ImagePromptNetwork::keys(const Tensor& tokens) const {
  const Shape heads{tokens.dim(0), tokens.dim(1), config.hidden / Flux2Config::kHeadDim, Flux2Config::kHeadDim};
  std::vector<KeyValue> keys;
  for (const BlockKeys& block : blocks) keys.push_back({reshape(block.k(tokens), heads), reshape(block.v(tokens), heads)});
  return keys;
}

void ImagePromptNetwork::visit(const ParameterVisitor& visitor) {
  const std::string prefix = kPromptPrefix;
  proj.visit(prefix + "proj", visitor);
  norm.visit(prefix + "norm", visitor);
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].k.visit(prompt_block_name(static_cast<int64_t>(i), "k"), visitor);
    blocks[i].v.visit(prompt_block_name(static_cast<int64_t>(i), "v"), visitor);
  }
}

ImagePromptNetwork load_image_prompt(const WeightSource& weights, const ImagePromptConfig& config, Stream& stream, DType dtype) {
  ImagePromptNetwork network(config);
  const std::string prefix = prompt_prefix_in(weights).value_or(kPromptPrefix);
  network.visit([&](const Parameter& p) { p.tensor = weights.open(prompt_name_in_file(p.name, prefix)).to(stream).cast(dtype); });
  stream.wait();
  return network;
}

}  // namespace flux2
