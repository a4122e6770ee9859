#include "weights/adapter_file.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace flux2 {

namespace {

struct Suffix {
  std::string_view text;
  AdapterKind kind;
  const char* role;  // null: refused, `why` names it
  const char* why = "";
};

using K = AdapterKind;

// A longer text stands before those it begins with.
constexpr Suffix kSuffixes[] = {
    {".lora_linear_layer.down", K::Lora, "down"},
    {".lora_linear_layer.up", K::Lora, "up"},
    {".lora_magnitude_vector", K::Lora, "magnitude"},
    {".lora_mid", K::Lora, nullptr, "a Tucker form for convolutions"},
    {".lora_A", K::Lora, "down"},
    {".lora_B", K::Lora, "up"},
    {".lora_down", K::Lora, "down"},
    {".lora_up", K::Lora, "up"},
    {".lora.down", K::Lora, "down"},
    {".lora.up", K::Lora, "up"},
    {"_lora.down", K::Lora, "down"},
    {"_lora.up", K::Lora, "up"},
    {".dora_scale", K::Lora, "magnitude"},
    {".magnitude", K::Lora, "magnitude"},
    {".hada_w1_a", K::LoHa, "w1_a"},
    {".hada_w1_b", K::LoHa, "w1_b"},
    {".hada_w2_a", K::LoHa, "w2_a"},
    {".hada_w2_b", K::LoHa, "w2_b"},
    {".hada_t", K::LoHa, nullptr, "a Tucker form for convolutions"},
    {".lokr_w1_a", K::LoKr, "w1_a"},
    {".lokr_w1_b", K::LoKr, "w1_b"},
    {".lokr_w1", K::LoKr, "w1"},
    {".lokr_w2_a", K::LoKr, "w2_a"},
    {".lokr_w2_b", K::LoKr, "w2_b"},
    {".lokr_w2", K::LoKr, "w2"},
    {".lokr_t", K::LoKr, nullptr, "a Tucker form for convolutions"},
    {".oft_blocks", K::Oft, "blocks"},
    {".rescale", K::Oft, "rescale"},
    {".oft_R", K::Oft, nullptr, "PEFT's OFT"},
    {".on_input", K::Lora, nullptr, "IA3"},
    {".a1.weight", K::Lora, nullptr, "GLoRA"},
    {".set_weight", K::Difference, nullptr, "a replacement of whole weights (set_weight)"},
    {".diff_b", K::Difference, "bias"},
    {".diff", K::Difference, "diff"},
    {".alpha", K::Lora, "alpha"},
    {".scale", K::Lora, "scale"},
};

struct Split {
  std::string module;
  const Suffix* suffix;
  bool bias = false;
};

// Behind the suffix may stand an adapter's name and `weight`: .lora_A.default.weight
bool may_follow(std::string_view rest, bool& bias) {
  if (rest.ends_with(".bias")) bias = true, rest.remove_suffix(5);
  else if (rest.ends_with(".weight")) rest.remove_suffix(7);
  if (rest.empty()) return true;
  return rest[0] == '.' && rest.size() > 1 && rest.find('.', 1) == std::string_view::npos;
}

std::optional<Split> split_key(std::string_view key) {
  for (const Suffix& s : kSuffixes) {
    const size_t at = key.rfind(s.text);
    if (at == std::string_view::npos || at == 0) continue;
    const std::string_view rest = key.substr(at + s.text.size());
    bool bias = false;
    if (!s.role || may_follow(rest, bias)) return Split{std::string(key.substr(0, at)), &s, bias};
  }
  return std::nullopt;
}

bool belongs_to_text_encoder(std::string_view key) {
  for (std::string_view prefix : {"lora_te_", "lora_te1_", "lora_te2_", "text_encoder.", "text_encoder_2.", "te."})
    if (key.starts_with(prefix)) return true;
  return false;
}

double number_in(const StoredTensor& t) {
  if (t.shape.numel() != 1) fail(ErrorCode::BadFile, "{} of shape {} is not one number", printable(t.name), t.shape);
  float value;
  read_row(t, 0, &value);
  if (!std::isfinite(value)) fail(ErrorCode::BadFile, "{} is {}, not a number to scale with", printable(t.name), value);
  return value;
}

// What PEFT writes about an adapter, in adapter_config.json or, each name with its part's prefix, in the metadata.
struct PeftConfig {
  std::optional<double> alpha, rank;
  bool rank_stabilised = false;
  std::vector<std::pair<std::string, double>> alpha_pattern;

  double alpha_of(const std::string& module, double otherwise) const {
    for (const auto& [pattern, value] : alpha_pattern)
      if (stands_for(pattern, module)) return value;
    return alpha.value_or(otherwise);
  }

  // A pattern is the end of a module's name, from a dot on, or a regular expression for it.
  static bool stands_for(const std::string& pattern, const std::string& module) {
    constexpr size_t kLongest = 256;  // patterns come from outside: what is longer is taken as it stands
    if (module == pattern || module.ends_with("." + pattern)) return true;
    if (pattern.size() > kLongest || module.size() > kLongest) return false;
    try {
      return std::regex_match(module, std::regex("(.*\\.)?(" + pattern + ")"));
    } catch (const std::regex_error&) {
      return false;
    }
  }
};

PeftConfig peft_config(const Json& json, const std::string& prefix) {
  PeftConfig config;
  const auto number = [&](const char* name) -> std::optional<double> {
    const auto at = json.find(prefix + name);
    return at != json.end() && at->is_number() ? std::optional(at->get<double>()) : std::nullopt;
  };
  config.alpha = number("lora_alpha");
  if (!config.alpha) config.alpha = number("alpha");  // of LoHa and LoKr
  config.rank = number("r");
  config.rank_stabilised = json.value(prefix + "use_rslora", Json()) == true;
  if (const Json patterns = json.value(prefix + "alpha_pattern", Json()); patterns.is_object())
    for (const auto& [name, value] : patterns.items())
      if (value.is_number()) config.alpha_pattern.emplace_back(name, value.get<double>());
  return config;
}

PeftConfig peft_config_of(const WeightSource& source, const std::string& text) {
  if (!text.empty()) {
    const Json json = in_context("adapter_config.json", [&] { return parse_json(text); });
    return json.is_object() ? peft_config(json, "") : PeftConfig{};
  }
  const auto at = source.metadata().find("lora_adapter_metadata");
  if (at == source.metadata().end()) return {};
  const Json json = in_context("lora_adapter_metadata", [&] { return parse_json(at->second); });
  return json.is_object() ? peft_config(json, "transformer.") : PeftConfig{};
}

void require_parts(const AdapterModule& m) {
  const auto need = [&](std::initializer_list<const char*> any_of) {
    for (const char* role : any_of)
      if (m.part(role)) return;
    fail(ErrorCode::BadFile, "{} has {} but its {} is missing", printable(m.name), printable(m.first_key()), *any_of.begin());
  };
  switch (m.kind) {
    case K::Lora: need({"down"}), need({"up"}); break;
    case K::LoHa: need({"w1_a"}), need({"w1_b"}), need({"w2_a"}), need({"w2_b"}); break;
    case K::LoKr:
      need({"w1", "w1_a"}), need({"w2", "w2_a"});
      if (m.part("w1_a")) need({"w1_b"});
      if (m.part("w2_a")) need({"w2_b"});
      break;
    case K::Oft:
      need({"blocks"});
      if (m.part("blocks")->shape.rank() != 3)
        fail(ErrorCode::Incompatible, "{}: BOFT adapters are not supported", printable(m.name));
      break;
    case K::Difference: need({"diff"}); break;
  }
}

// The matrix of a role as [rows, columns]; factors of 1×1 convolutions count as matrices.
int64_t rows_of(const StoredTensor* t) { return t && t->shape.rank() >= 1 ? t->shape[0] : 0; }

}  // namespace

const char* name_of(AdapterKind kind) {
  switch (kind) {
    case K::Lora: return "LoRA";
    case K::LoHa: return "LoHa";
    case K::LoKr: return "LoKr";
    case K::Oft: return "OFT";
    case K::Difference: return "difference";
  }
  return "";
}

const StoredTensor* AdapterModule::part(const std::string& role) const {
  const auto at = parts.find(role);
  return at == parts.end() ? nullptr : at->second;
}

std::string AdapterModule::first_key() const { return parts.empty() ? name : parts.begin()->second->name; }

int64_t AdapterModule::rank() const {
  switch (kind) {
    case K::Lora: return rows_of(part("down"));
    case K::LoHa: return rows_of(part("w1_b"));
    case K::LoKr: return part("w2_b") ? rows_of(part("w2_b")) : rows_of(part("w1_b"));
    default: return 0;
  }
}

// Files of a LoKr whose factors are both whole carry placeholders like 1e10 as alpha: there is no rank to divide by.
double AdapterModule::scale() const {
  const auto r = static_cast<double>(rank());
  if (!alpha || r == 0 || kind == K::Oft) return factor;
  return *alpha / (rank_stabilised ? std::sqrt(r) : r);
}

bool AdapterFile::has_dora() const {
  return std::any_of(modules.begin(), modules.end(), [](const AdapterModule& m) { return m.part("magnitude") != nullptr; });
}

AdapterFile read_adapter(std::shared_ptr<const WeightSource> source, const std::string& config, const Log& log) {
  AdapterFile file{.source = source};
  std::map<std::string, AdapterModule> modules;
  std::map<std::string, std::pair<const StoredTensor*, const StoredTensor*>> numbers;  // alpha, scale
  size_t biases = 0;
  for (const StoredTensor& t : source->tensors()) {
    if (belongs_to_text_encoder(t.name)) {
      file.text_encoder_keys.push_back(t.name);
      continue;
    }
    const auto split = split_key(t.name);
    if (!split) {
      file.unknown_keys.push_back(t.name);
      continue;
    }
    const Suffix& s = *split->suffix;
    if (!s.role) fail(ErrorCode::Incompatible, "{} is part of {}, which is not supported", printable(t.name), s.why);
    const std::string_view role = s.role;
    if (split->bias || role == "bias") {
      ++biases;
      continue;
    }
    if (role == "alpha") numbers[split->module].first = &t;
    else if (role == "scale") numbers[split->module].second = &t;
    else {
      AdapterModule& m = modules[split->module];
      if (role != "magnitude") m.kind = s.kind;
      if (!m.parts.emplace(s.role, &t).second)
        fail(ErrorCode::BadFile, "{} and {} are the same part of a layer", printable(m.part(s.role)->name), printable(t.name));
    }
  }
  const PeftConfig peft = peft_config_of(*source, config);
  for (auto& [name, m] : modules) {
    m.name = name;
    require_parts(m);
    if (const auto at = numbers.find(name); at != numbers.end()) {
      if (at->second.first) m.alpha = number_in(*at->second.first);
      if (at->second.second) m.factor = number_in(*at->second.second);
    } else if (peft.alpha || !peft.alpha_pattern.empty()) {
      m.alpha = peft.alpha_of(name, static_cast<double>(m.rank()));
      m.rank_stabilised = peft.rank_stabilised;
      // PEFT divides by the configured rank even where both factors of a LoKr are whole.
      if (m.kind == K::LoKr && m.rank() == 0 && peft.rank.value_or(0) > 0) m.factor = *m.alpha / *peft.rank;
    }
    if (m.alpha == 0.0 && m.kind != K::Oft) {
      log.warn("{}: alpha is 0, which no trainer means; taken for the rank", printable(name));
      m.alpha.reset();
    }
    file.modules.push_back(std::move(m));
  }
  for (const auto& [name, pair] : numbers)
    if (!modules.contains(name))
      for (const StoredTensor* t : {pair.first, pair.second})
        if (t) file.unknown_keys.push_back(t->name);
  if (biases > 0) log.warn("{}: {} changes of biases are ignored; the transformer has none", source->description(), biases);
  return file;
}

AdapterFile read_adapter(const std::filesystem::path& path, const Log& log) {
  const auto config = (std::filesystem::is_directory(path) ? path : path.parent_path()) / "adapter_config.json";
  std::error_code unreadable;
  const auto source = open_weights(path, log);
  return in_context(source->description(), [&] {
    return read_adapter(source, std::filesystem::is_regular_file(config, unreadable) ? read_text_file(config) : std::string(),
                        log);
  });
}

}  // namespace flux2
