#include "hub/convert_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "hub/training_kind.h"
#include "model/decoder_config.h"
#include "model/vae_config.h"
#include "weights/gguf_format.h"
#include "weights/round_values.h"
#include "weights/safetensors_writer.h"

namespace flux2 {

namespace {

bool is_eight_bit(DType t) { return t == DType::F8_E4M3 || t == DType::F8_E5M2 || t == DType::I8; }

class Planner {
 public:
  Planner(const NamedWeights& weights, const ConvertChoice& choice)
      : weights_(weights), choice_(choice), gguf_(choice.layout == FileLayout::Gguf) {}

  std::vector<ConvertPlan> run() {
    std::vector<ConvertPlan> plans;
    uint64_t bytes = 0;
    for (const std::string& name : weights_.names()) {
      std::vector<PlannedTensor> group = tensors_of(name);
      uint64_t more = 0;
      for (const PlannedTensor& t : group) more += t.bytes();
      if (plans.empty() || (choice_.shard_bytes > 0 && bytes > 0 && bytes + more > choice_.shard_bytes && !gguf_)) {
        plans.emplace_back().gguf = gguf_;
        bytes = 0;
      }
      bytes += more;
      std::move(group.begin(), group.end(), std::back_inserter(plans.back().tensors));
    }
    for (ConvertPlan& plan : plans) {
      if (gguf_) plan.header = gguf_header_of(plan);
      else finish_safetensors(plan);
    }
    return plans;
  }

 private:
  DType stored(const std::string& name) const {
    const StoredTensor& t = *weights_.pieces(name).front().tensor;
    return dtype_of(t);
  }

  bool holds(const Quantisation& t) const {
    return gguf_ ? ggml_type_of(t.dtype) && t.scales == Scales::None : !is_block_type(t.dtype);
  }

  // Unchanged if the file format supports the type. Separate scales are multiplied into the values.
  Quantisation kept(const std::string& name) const {
    const DType t = stored(name);
    return holds({t}) && !is_eight_bit(t) ? Quantisation{t} : Quantisation{DType::BF16};
  }

  Quantisation type_of(const std::string& name, const Shape& shape) const {
    const bool matrix = shape.rank() == 2;
    for (const QuantRule& rule : choice_.rules)
      if (rule.pattern.found_in(name)) return fitting(name, shape, rule.type ? *rule.type : kept(name), &rule);
    if (!matrix) return gguf_ && shape.rank() <= 1 ? Quantisation{DType::F32} : kept(name);
    if (!choice_.type) return kept(name);
    if (is_float(choice_.type->dtype) || !block_of(name).empty()) return fitting(name, shape, *choice_.type, nullptr);
    return is_block_type(kept(name).dtype) || is_eight_bit(stored(name)) ? Quantisation{DType::BF16} : kept(name);
  }

  // If the row length is not a multiple of the block, a type with smaller blocks is used.
  Quantisation fitting(const std::string& name, const Shape& shape, const Quantisation& type, const QuantRule* rule) const {
    if (!holds(type)) {
      const std::string why = fmt::format("{} cannot be stored in {} files", type.name(), gguf_ ? "GGUF" : "safetensors");
      if (rule) fail(ErrorCode::InvalidArgument, "the rule {} cannot be used: {}", rule->text, why);
      throw Error(ErrorCode::InvalidArgument, why,
                  gguf_ ? Hint("use a type like q4_k, or {0}", {set_option("to", "bfl")})
                        : Hint("use fp8, int8 or nvfp4, or {0}", {set_option("to", "gguf")}));
    }
    if (type.scales != Scales::None && shape.rank() != 2)
      fail(ErrorCode::InvalidArgument, "{} of shape {} cannot be stored as {}", name, shape, type.name());
    const int64_t row = shape.rank() == 0 ? 1 : shape[-1];
    if (type.scales == Scales::Nvfp4 && row % kNvfp4Group != 0) return {DType::BF16};
    if (!is_block_type(type.dtype) || row % info(type.dtype).block_elements == 0) return type;
    return {row % 32 == 0 ? DType::Q8_0 : DType::F16};
  }

  std::vector<PlannedTensor> tensors_of(const std::string& canonical) {
    const Shape shape = weights_.shape(canonical);
    if (shape.numel() == 0 || stored(canonical) == DType::I64) return {};  // counters of training
    const Quantisation type = type_of(canonical, shape);
    std::vector<DiffusersTensor> pieces{{canonical, shape, {{0, shape.rank() == 0 ? 1 : shape[0]}}}};
    if (choice_.layout == FileLayout::Diffusers) pieces = to_diffusers(weights_.part(), canonical, shape);
    if (gguf_) pieces[0].name = to_ggml(weights_.part(), canonical);
    std::vector<PlannedTensor> list;
    for (const DiffusersTensor& p : pieces) add_piece(list, canonical, p, type);
    return list;
  }

  void add_piece(std::vector<PlannedTensor>& list, const std::string& canonical, const DiffusersTensor& p,
                 const Quantisation& type) {
    using Role = PlannedTensor::Role;
    const auto add = [&](const std::string& name, DType dtype, const Shape& shape, Role role, const std::string& text = {}) {
      list.push_back({name, dtype, shape, role, p.name, type, canonical, p.rows, text});
    };
    const int64_t rows = p.shape.rank() > 0 ? p.shape[0] : 1, columns = p.shape.rank() == 2 ? p.shape[1] : 1;
    const auto blocks = [](int64_t extent, int64_t side) { return (extent + side - 1) / side; };
    std::string format;
    switch (type.scales) {
      case Scales::None: return add(p.name, type.dtype, p.shape, Role::Values);
      case Scales::Tensor:
        add(p.name + "_scale", DType::F32, {}, Role::Scales);
        format = "float8_e4m3fn";
        break;
      case Scales::Rows:
        add(p.name + "_scale", DType::F32, {rows, 1}, Role::Scales);
        format = "int8_tensorwise";
        break;
      case Scales::Blocks:
        add(p.name, type.dtype, p.shape, Role::Values);
        return add(p.name + "_scale_inv", DType::F32, {blocks(rows, kScaleBlock), blocks(columns, kScaleBlock)}, Role::Scales);
      case Scales::Nvfp4:
        add(p.name + "_scale", DType::F8_E4M3, {blocks(rows, 128) * 128, blocks(columns / kNvfp4Group, 4) * 4},
            Role::TiledScales);
        add(p.name + "_scale_2", DType::F32, {}, Role::Scales);
        format = "nvfp4";
        break;
    }
    add(p.name, type.dtype, type.scales == Scales::Nvfp4 ? Shape{rows, columns / 2} : p.shape, Role::Values);
    const std::string layer = p.name.substr(0, p.name.rfind('.'));
    quantised_layers_[layer] = {{"format", format}};
    if (choice_.layout != FileLayout::Comfy) return;
    const std::string text = Json{{"format", format}}.dump();
    add(layer + ".comfy_quant", DType::U8, {static_cast<int64_t>(text.size())}, Role::Text, text);
  }

  void finish_safetensors(ConvertPlan& plan) const {
    std::vector<SafetensorsWriter::Declared> declared;
    std::map<std::string, PlannedTensor> by_name;
    for (PlannedTensor& t : plan.tensors) {
      declared.push_back({t.name, t.dtype, t.shape});
      by_name.emplace(t.name, std::move(t));
    }
    std::map<std::string, std::string> metadata = metadata_to_keep(weights_.source());
    metadata["format"] = "pt";
    if (!choice_.training.empty()) metadata[kTrainingKey] = choice_.training;
    if (!quantised_layers_.empty())
      metadata["_quantization_metadata"] =
          Json{{"format_version", "1.0"}, {"layers", quantised_layers_}}.dump(-1, ' ', false, Json::error_handler_t::replace);
    declared = safetensors_order(std::move(declared));
    plan.header = safetensors_header(declared, metadata);
    plan.tensors.clear();
    for (const auto& d : declared) plan.tensors.push_back(std::move(by_name.at(d.name)));
  }

  std::string gguf_header_of(const ConvertPlan& plan) const {
    std::vector<GgufDeclared> declared;
    for (const PlannedTensor& t : plan.tensors) declared.push_back({t.name, t.dtype, t.shape});
    return gguf_header(pairs(), declared);
  }

  std::vector<GgufPair> pairs() const {
    const bool text = weights_.part() == ModelPart::TextEncoder;
    std::vector<GgufPair> list = {{"general.architecture", text                                        ? "qwen3"
                                                           : weights_.part() == ModelPart::Transformer ? "flux"
                                                                                                       : "flux2-vae"},
                                  {"general.quantization_version", uint32_t{2}}};
    if (const auto file_type = choice_.type ? gguf_file_type(choice_.type->dtype) : std::nullopt)
      list.push_back({"general.file_type", *file_type});
    for (const char* key : {"general.name", "modelspec.title"})
      if (const auto at = weights_.source().metadata().find(key); at != weights_.source().metadata().end()) {
        list.push_back({"general.name", at->second});
        break;
      }
    if (!choice_.training.empty()) list.push_back({kTrainingKey, choice_.training});
    if (const auto at = weights_.source().metadata().find(kNormGroupsKey); at != weights_.source().metadata().end())
      list.push_back({kNormGroupsKey, at->second});
    if (text) add_language_keys(list);
    list.insert(list.end(), choice_.more_pairs.begin(), choice_.more_pairs.end());
    return list;
  }

  // Metadata that llama.cpp and we read instead of a config.json, as far as shapes determine it.
  void add_language_keys(std::vector<GgufPair>& list) const {
    if (decoder_family(weights_) != DecoderFamily::Qwen3)
      fail(ErrorCode::Incompatible, "only text encoders of the Qwen3 family can be written as GGUF files; {} is another one",
           weights_.source().description());
    uint32_t layers = 0;
    while (weights_.has(fmt::format("model.layers.{}.input_layernorm.weight", layers))) ++layers;
    const auto rows = [&](const char* name) { return weights_.has(name) ? static_cast<uint32_t>(weights_.shape(name)[0]) : 0; };
    const uint32_t head = rows("model.layers.0.self_attn.q_norm.weight");
    const uint32_t heads = head ? rows("model.layers.0.self_attn.q_proj.weight") / head : 0;
    const uint32_t kv_heads = head ? rows("model.layers.0.self_attn.k_proj.weight") / head : 0;
    list.push_back({"qwen3.block_count", layers});
    list.push_back({"qwen3.embedding_length", static_cast<uint32_t>(weights_.shape("model.embed_tokens.weight")[1])});
    list.push_back({"qwen3.feed_forward_length", rows("model.layers.0.mlp.gate_proj.weight")});
    list.push_back({"qwen3.attention.head_count", heads});
    list.push_back({"qwen3.attention.head_count_kv", kv_heads});
    list.push_back({"qwen3.attention.key_length", head});
    list.push_back({"qwen3.attention.value_length", head});
    list.push_back({"qwen3.attention.layer_norm_rms_epsilon", 1e-6f});
    list.push_back({"qwen3.rope.freq_base", 1e6f});
    list.push_back({"qwen3.context_length", uint32_t{40960}});
  }

  const NamedWeights& weights_;
  const ConvertChoice& choice_;
  bool gguf_;
  Json quantised_layers_ = Json::object();
};

}  // namespace

const std::vector<std::string>& file_layout_names() {
  static const std::vector<std::string> names = {"bfl", "diffusers", "comfy", "gguf"};
  return names;
}

FileLayout file_layout_named(std::string_view name) {
  const auto& names = file_layout_names();
  const auto at = std::find(names.begin(), names.end(), name);
  check(at != names.end(), "\"{}\" is not one of {}", name, fmt::join(names, ", "));
  return static_cast<FileLayout>(at - names.begin());
}

QuantRule quant_rule(const std::string& text) {
  const size_t equals = text.rfind('=');
  check(equals != std::string::npos && equals > 0, "a rule is REGEX=TYPE, not \"{}\"", text);
  return {text, Pattern(text.substr(0, equals)), quantisation_named(text.substr(equals + 1))};
}

uint64_t PlannedTensor::bytes() const { return static_cast<uint64_t>(bytes_for(dtype, shape.numel())); }

uint64_t ConvertPlan::padding_of(const PlannedTensor& t) const { return gguf ? gguf_padding(t.bytes()) : 0; }

uint64_t ConvertPlan::total_bytes() const {
  uint64_t total = header.size();
  for (const PlannedTensor& t : tensors) total += t.bytes() + padding_of(t);
  return total;
}

std::map<std::string, std::string> metadata_to_keep(const WeightSource& source) {
  std::map<std::string, std::string> kept;
  for (const auto& [key, value] : source.metadata())
    if (key.starts_with("modelspec.") || key.starts_with("ss_") || key == kNormGroupsKey || key == kTrainingKey)
      kept.emplace(key, value);
  return kept;
}

std::vector<ConvertPlan> plan_conversion(const NamedWeights& weights, const ConvertChoice& choice) {
  return Planner(weights, choice).run();
}

}  // namespace flux2
