#include "hub/convert_plan.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/json.h"
#include "weights/gguf_format.h"
#include "weights/gguf_writer.h"
#include "weights/safetensors_writer.h"

namespace flux2 {

namespace {

struct TypeName {
  const char* name;
  StoredAs type;
};
constexpr std::array<TypeName, 18> kTypeNames = {{{"keep", {}},
                                                  {"f32", DType::F32},
                                                  {"f16", DType::F16},
                                                  {"bf16", DType::BF16},
                                                  {"fp8", DType::F8_E4M3},
                                                  {"int8", DType::I8},
                                                  {"q8_0", DType::Q8_0},
                                                  {"q6_k", DType::Q6_K},
                                                  {"q5_k", DType::Q5_K},
                                                  {"q5_1", DType::Q5_1},
                                                  {"q5_0", DType::Q5_0},
                                                  {"q4_k", DType::Q4_K},
                                                  {"q4_1", DType::Q4_1},
                                                  {"q4_0", DType::Q4_0},
                                                  {"iq4_nl", DType::IQ4_NL},
                                                  {"iq4_xs", DType::IQ4_XS},
                                                  {"q3_k", DType::Q3_K},
                                                  {"q2_k", DType::Q2_K}}};

bool is_eight_bit(DType t) { return t == DType::F8_E4M3 || t == DType::I8; }

bool in_block(std::string_view name) {
  return name.find("blocks.") != std::string_view::npos || name.find("layers.") != std::string_view::npos;
}

class Planner {
 public:
  Planner(const NamedWeights& weights, const ConvertChoice& choice) : weights_(weights), choice_(choice) {}

  ConvertPlan run() {
    plan_.gguf = choice_.layout == FileLayout::Gguf;
    for (const std::string& name : weights_.names()) add(name);
    if (plan_.gguf) finish_gguf();
    else finish_safetensors();
    return std::move(plan_);
  }

 private:
  DType stored(const std::string& name) const {
    const StoredTensor& t = *weights_.pieces(name).front().tensor;
    return dtype_of(t);
  }

  bool holds(DType t) const { return plan_.gguf ? ggml_type_of(t) && !is_eight_bit(t) : !is_block_type(t); }

  // As it is where the file can hold it. Scales beside FP8 are taken into the values.
  DType kept(const std::string& name) const {
    const DType t = stored(name);
    return holds(t) && !is_eight_bit(t) ? t : DType::BF16;
  }

  DType type_of(const std::string& name, const Shape& shape) const {
    const bool matrix = shape.rank() == 2;
    for (const QuantRule& rule : choice_.rules)
      if (std::regex_search(name, rule.pattern)) return fitting(name, shape, rule.type ? *rule.type : kept(name), &rule);
    if (!matrix) return plan_.gguf && shape.rank() <= 1 ? DType::F32 : kept(name);
    if (!choice_.type) return kept(name);
    if (is_float(*choice_.type) || in_block(name)) return fitting(name, shape, *choice_.type, nullptr);
    return is_block_type(kept(name)) || is_eight_bit(stored(name)) ? DType::BF16 : kept(name);
  }

  // Rows that blocks do not fill fall back to a finer type that they do.
  DType fitting(const std::string& name, const Shape& shape, DType type, const QuantRule* rule) const {
    if (!holds(type)) {
      const std::string why = fmt::format("{} cannot be stored in {} files", name_of(type), plan_.gguf ? "GGUF" : "safetensors");
      if (rule) fail(ErrorCode::InvalidArgument, "--quant-rule {}: {}", rule->text, why);
      throw Error(ErrorCode::InvalidArgument, why,
                  plan_.gguf ? "use a type like q4_k, or --to bfl" : "use fp8 or int8, or --to gguf");
    }
    if (is_eight_bit(type) && shape.rank() != 2)
      fail(ErrorCode::InvalidArgument, "{} of shape {} is no matrix to store as {}", name, shape, name_of(type));
    if (!is_block_type(type)) return type;
    const int64_t row = shape.rank() == 0 ? 1 : shape[-1];
    if (row % info(type).block_elements == 0) return type;
    return row % 32 == 0 ? DType::Q8_0 : DType::F16;
  }

  void add(const std::string& canonical) {
    const Shape shape = weights_.shape(canonical);
    if (shape.numel() == 0 || stored(canonical) == DType::I64) return;  // counters of training
    const DType type = type_of(canonical, shape);
    std::vector<DiffusersTensor> pieces{{canonical, shape, {{0, shape.rank() == 0 ? 1 : shape[0]}}}};
    if (choice_.layout == FileLayout::Diffusers) pieces = to_diffusers(weights_.part(), canonical, shape);
    if (plan_.gguf) pieces[0].name = to_ggml(weights_.part(), canonical);
    for (const DiffusersTensor& p : pieces) add_piece(canonical, p, type);
  }

  void add_piece(const std::string& canonical, const DiffusersTensor& p, DType type) {
    using Role = PlannedTensor::Role;
    plan_.tensors.push_back({p.name, type, p.shape, Role::Values, canonical, p.rows, {}});
    if (!is_eight_bit(type)) return;
    const std::string layer = p.name.substr(0, p.name.rfind('.'));
    const bool fp8 = type == DType::F8_E4M3;
    const Shape scales = fp8 ? Shape{} : Shape{p.shape[0], 1};
    plan_.tensors.push_back(
        {p.name + "_scale", DType::F32, scales, fp8 ? Role::TensorScale : Role::RowScales, canonical, p.rows, {}});
    const std::string format = fp8 ? "float8_e4m3fn" : "int8_tensorwise";
    packed_layers_[layer] = {{"format", format}};
    if (choice_.layout != FileLayout::Comfy) return;
    const std::string text = Json{{"format", format}}.dump();
    plan_.tensors.push_back(
        {layer + ".comfy_quant", DType::U8, {static_cast<int64_t>(text.size())}, Role::Text, canonical, {}, text});
  }

  void finish_safetensors() {
    std::vector<SafetensorsWriter::Declared> declared;
    std::map<std::string, PlannedTensor> by_name;
    for (PlannedTensor& t : plan_.tensors) {
      declared.push_back({t.name, t.dtype, t.shape});
      by_name.emplace(t.name, std::move(t));
    }
    std::map<std::string, std::string> metadata = {{"format", "pt"}};
    for (const auto& [key, value] : weights_.source().metadata())
      if (key.starts_with("modelspec.") || key.starts_with("ss_")) metadata.emplace(key, value);
    if (!packed_layers_.empty())
      metadata["_quantization_metadata"] = Json{{"format_version", "1.0"}, {"layers", packed_layers_}}.dump();
    declared = safetensors_order(std::move(declared));
    plan_.header = safetensors_header(declared, metadata);
    plan_.tensors.clear();
    for (const auto& d : declared) plan_.tensors.push_back(std::move(by_name.at(d.name)));
  }

  void finish_gguf() {
    std::vector<GgufDeclared> declared;
    for (const PlannedTensor& t : plan_.tensors) declared.push_back({t.name, t.dtype, t.shape});
    plan_.header = gguf_header(pairs(), declared);
  }

  std::vector<GgufPair> pairs() const {
    const bool text = weights_.part() == ModelPart::TextEncoder;
    std::vector<GgufPair> list = {{"general.architecture", text                                        ? "qwen3"
                                                           : weights_.part() == ModelPart::Transformer ? "flux"
                                                                                                       : "flux2-vae"},
                                  {"general.quantization_version", uint32_t{2}}};
    if (const auto file_type = choice_.type ? gguf_file_type(*choice_.type) : std::nullopt)
      list.push_back({"general.file_type", *file_type});
    for (const char* key : {"general.name", "modelspec.title"})
      if (const auto at = weights_.source().metadata().find(key); at != weights_.source().metadata().end()) {
        list.push_back({"general.name", at->second});
        break;
      }
    if (text) add_language_keys(list);
    return list;
  }

  // What llama.cpp and we read instead of a config.json, as far as shapes tell.
  void add_language_keys(std::vector<GgufPair>& list) const {
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
  ConvertPlan plan_;
  Json packed_layers_ = Json::object();
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

const std::vector<std::string>& stored_as_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const TypeName& t : kTypeNames) all.emplace_back(t.name);
    return all;
  }();
  return names;
}

StoredAs stored_as_named(std::string_view name) {
  for (const TypeName& t : kTypeNames)
    if (name == t.name) return t.type;
  fail(ErrorCode::InvalidArgument, "\"{}\" is not one of {}", name, fmt::join(stored_as_names(), ", "));
}

QuantRule quant_rule(const std::string& text) {
  const size_t equals = text.rfind('=');
  check(equals != std::string::npos && equals > 0, "a rule is REGEX=TYPE, not \"{}\"", text);
  try {
    return {text, std::regex(text.substr(0, equals)), stored_as_named(text.substr(equals + 1))};
  } catch (const std::regex_error& e) {
    fail(ErrorCode::InvalidArgument, "\"{}\" is not a regular expression: {}", text.substr(0, equals), e.what());
  }
}

uint64_t ConvertPlan::bytes_of(const PlannedTensor& t) const {
  return static_cast<uint64_t>(bytes_for(t.dtype, t.shape.numel()));
}
uint64_t ConvertPlan::padding_of(const PlannedTensor& t) const { return gguf ? gguf_padding(bytes_of(t)) : 0; }

uint64_t ConvertPlan::total_bytes() const {
  uint64_t total = header.size();
  for (const PlannedTensor& t : tensors) total += bytes_of(t) + padding_of(t);
  return total;
}

ConvertPlan plan_conversion(const NamedWeights& weights, const ConvertChoice& choice) { return Planner(weights, choice).run(); }

}  // namespace flux2
