#include "model/decoder_config.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/json.h"
#include "nn/load.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kMistralWidth = 5120, kMistralVocabulary = 100000;

// What is written about a file besides its tensors.
class Description {
 public:
  explicit Description(const NamedWeights& weights) : metadata_(weights.source().metadata()) {
    if (const auto named = metadata_.find("general.architecture"); named != metadata_.end()) architecture_ = named->second;
    for (const StoredTensor& t : weights.source().tensors()) {
      if (!t.file) continue;
      const fs::path folder = t.file->path().parent_path();
      read(folder / "config.json");
      if (weights.dialect() == Dialect::MistralNative) read(folder / "params.json");
      break;
    }
  }

  // mistral3, or empty if nothing says what the model is.
  std::string model_type() const {
    if (!architecture_.empty()) return architecture_;
    const auto found = json_.find("model_type");
    return found != json_.end() && found->is_string() ? found->get<std::string>() : std::string();
  }

  template <class T>
  void set(T& target, double low, double high, const char* gguf, std::initializer_list<const char*> keys) const {
    if (const auto found = metadata_.find(architecture_ + gguf); !architecture_.empty() && found != metadata_.end())
      take(target, low, high, std::strtod(found->second.c_str(), nullptr), "the file's metadata", architecture_ + gguf);
    for (const char* key : keys) {
      for (const Json* object : {&json_, &rope_}) {
        const auto found = object->find(key);
        if (found == object->end() || found->is_null()) continue;
        take(target, low, high, found->is_number() ? found->get<double>() : NAN, path_.string(), key);
      }
    }
  }

 private:
  void read(const fs::path& path) {
    std::error_code unreadable;
    if (!fs::is_regular_file(path, unreadable)) return;
    Json json = read_model_json(path);
    if (!json.is_object()) fail(ErrorCode::BadFile, "{}: expected an object, found {}", path.string(), json.type_name());
    // Models that also see describe their language model inside.
    if (const auto text = json.find("text_config"); text != json.end() && text->is_object()) json = Json(*text);
    if (const auto rope = json.find("rope_parameters"); rope != json.end() && rope->is_object()) rope_ = *rope;
    json_ = std::move(json);
    path_ = path;
  }

  template <class T>
  static void take(T& target, double low, double high, double value, const std::string& where, const std::string& key) {
    if (!(value >= low && value <= high))
      fail(ErrorCode::BadFile, "{}: {} must be a number from {} to {}", where, key, low, high);
    target = static_cast<T>(value);
  }

  const std::map<std::string, std::string>& metadata_;
  std::string architecture_;
  fs::path path_;
  Json json_ = Json::object(), rope_ = Json::object();
};

bool is_mistral(const NamedWeights& weights, const Description& description, const Shape& table) {
  const std::string type = description.model_type();
  return (table[1] == kMistralWidth && table[0] >= kMistralVocabulary) || type == "mistral" || type == "mistral3" ||
         weights.source().find("tekken_model") || weights.dialect() == Dialect::MistralNative;
}

}  // namespace

const char* name_of(DecoderFamily family) { return family == DecoderFamily::Qwen3 ? "Qwen3" : "Mistral"; }

DecoderConfig mistral_small_config() {
  return {.family = DecoderFamily::Mistral,
          .vocab = 131072,
          .hidden = kMistralWidth,
          .intermediate = 32768,
          .heads = 32,
          .kv_heads = 8,
          .head_dim = 128,
          .layers = 40,
          .norm_eps = 1e-5f,
          .rope_theta = 1e9,
          .states = {10, 20, 30}};
}

std::optional<DecoderFamily> decoder_family(const NamedWeights& weights) {
  if (!weights.has("model.embed_tokens.weight") || !weights.has("model.layers.0.self_attn.q_proj.weight")) return std::nullopt;
  if (weights.has("model.layers.0.self_attn.q_norm.weight")) return DecoderFamily::Qwen3;
  const Shape table = config_shape(weights, "model.embed_tokens.weight", 2);
  if (is_mistral(weights, Description(weights), table)) return DecoderFamily::Mistral;
  return std::nullopt;
}

DecoderConfig detect_decoder(const NamedWeights& weights) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::Incompatible, fmt::format("{}: {}", weights.source().description(), what),
                "klein models use Qwen3 (4B for klein 4B, 8B for klein 9B) as text encoder, dev uses Mistral-Small-24B");
  };
  const auto shape = [&](const std::string& name, int rank) {
    if (!weights.has(name)) refuse("this is not a Qwen3 or Mistral text encoder: it has no " + name);
    return config_shape(weights, name, rank);
  };
  const Shape table = shape("model.embed_tokens.weight", 2);
  if (weights.has("model.layers.0.self_attn.q_proj.bias")) refuse("this is Qwen2, whose attention has biases, not Qwen3");
  const auto family = decoder_family(weights);
  const bool qwen = family == DecoderFamily::Qwen3;
  if (!family) refuse(fmt::format("this is a Llama-like language model (width {}, {} tokens), not Qwen3", table[1], table[0]));

  const Description description(weights);
  DecoderConfig c = qwen ? DecoderConfig{} : mistral_small_config();
  std::string head = "model.layers.0.self_attn.q_norm.weight";
  if (qwen) {
    c.head_dim = shape(head, 1)[0];
    description.set(c.norm_eps, 0, 1, "", {"rms_norm_eps"});
    description.set(c.rope_theta, 1, 1e12, "", {"rope_theta"});
  } else {
    head = "what describes the file (128 where nothing does)";  // no tensor has this width
    description.set(c.head_dim, 2, 1024, ".attention.key_length", {"head_dim"});
    description.set(c.norm_eps, 0, 1, ".attention.layer_norm_rms_epsilon", {"rms_norm_eps", "norm_eps"});
    description.set(c.rope_theta, 1, 1e12, ".rope.freq_base", {"rope_theta"});
  }
  c.vocab = table[0];
  c.hidden = table[1];
  c.heads = shape("model.layers.0.self_attn.q_proj.weight", 2)[0] / c.head_dim;
  c.kv_heads = shape("model.layers.0.self_attn.k_proj.weight", 2)[0] / c.head_dim;
  c.intermediate = shape("model.layers.0.mlp.gate_proj.weight", 2)[0];
  c.layers = 0;
  while (weights.has(fmt::format("model.layers.{}.input_layernorm.weight", c.layers))) ++c.layers;
  if (c.kv_heads < 1 || c.heads < 1 || c.heads % c.kv_heads != 0 || c.head_dim % 2 != 0)
    refuse(
        fmt::format("{} query heads, {} key heads of width {} do not form an attention; they were read from "
                    "model.layers.0.self_attn.q_proj.weight, model.layers.0.self_attn.k_proj.weight and {}",
                    c.heads, c.kv_heads, c.head_dim, head));
  return c;
}

}  // namespace flux2
