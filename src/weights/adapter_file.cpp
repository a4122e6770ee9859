#include "weights/adapter_file.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/json.h"
#include "base/pattern.h"
#include "base/text.h"

namespace flux2 {

namespace {

using K = AdapterKind;

struct Suffix {
  std::string_view text;
  AdapterKind kind;
  const char* role;
  const char* style;                  // null: other models have such names too, so it does not make a file an adapter
  const char* unsupported = nullptr;  // what such a key is part of, where that cannot be loaded
};

constexpr const char* kTucker = "a Tucker form for convolutions";

// A longer text stands before those it begins with.
constexpr Suffix kSuffixes[] = {
    {".lora_linear_layer.down", K::Lora, "down", "lora_linear_layer"},
    {".lora_linear_layer.up", K::Lora, "up", "lora_linear_layer"},
    {".lora_magnitude_vector", K::Lora, "magnitude", "lora_A/lora_B"},
    {".lora_mid", K::Lora, "mid", "lora_down/lora_up", kTucker},
    {".lora_A", K::Lora, "down", "lora_A/lora_B"},
    {".lora_B", K::Lora, "up", "lora_A/lora_B"},
    {".lora_down", K::Lora, "down", "lora_down/lora_up"},
    {".lora_up", K::Lora, "up", "lora_down/lora_up"},
    {".lora.down", K::Lora, "down", "lora.down/lora.up"},
    {".lora.up", K::Lora, "up", "lora.down/lora.up"},
    {"_lora.down", K::Lora, "down", "lora.down/lora.up"},
    {"_lora.up", K::Lora, "up", "lora.down/lora.up"},
    {".dora_scale", K::Lora, "magnitude", ""},
    {".magnitude", K::Lora, "magnitude", nullptr},
    {".hada_w1_a", K::LoHa, "w1_a", "hada"},
    {".hada_w1_b", K::LoHa, "w1_b", "hada"},
    {".hada_w2_a", K::LoHa, "w2_a", "hada"},
    {".hada_w2_b", K::LoHa, "w2_b", "hada"},
    {".hada_t", K::LoHa, "t", "hada", kTucker},
    {".lokr_w1_a", K::LoKr, "w1_a", "lokr"},
    {".lokr_w1_b", K::LoKr, "w1_b", "lokr"},
    {".lokr_w1", K::LoKr, "w1", "lokr"},
    {".lokr_w2_a", K::LoKr, "w2_a", "lokr"},
    {".lokr_w2_b", K::LoKr, "w2_b", "lokr"},
    {".lokr_w2", K::LoKr, "w2", "lokr"},
    {".lokr_t", K::LoKr, "t", "lokr", kTucker},
    {".oft_blocks", K::Oft, "blocks", "oft"},
    {".rescale", K::Oft, "rescale", nullptr},
    {".oft_R", K::Oft, "R", "oft", "PEFT's OFT"},
    {".on_input", K::Ia3, "on_input", "ia3", "IA3"},
    {".a1.weight", K::Glora, "a1", "glora", "GLoRA"},
    {".set_weight", K::Difference, "set_weight", "diff", "a replacement of whole weights (set_weight)"},
    {".diff_b", K::Difference, "bias", "diff"},
    {".diff", K::Difference, "diff", "diff"},
    {".alpha", K::Lora, "alpha", nullptr},
    {".scale", K::Lora, "scale", nullptr},
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
    if (s.kind == K::Difference && !s.unsupported && !rest.empty()) continue;
    if (s.unsupported || may_follow(rest, bias)) return Split{std::string(key.substr(0, at)), &s, bias};
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
  if (!std::isfinite(value)) fail(ErrorCode::BadFile, "{} is {}, which cannot be used as a scale", printable(t.name), value);
  return value;
}

// The end of a module's name, from a dot on, or a regular expression for it. What is not a valid expression is only a name.
class ModulePattern {
 public:
  explicit ModulePattern(std::string text) : ending_("." + text) {
    if (text.find_first_of(".()[]{}*+?|^$\\") == text.npos) return;
    try {
      pattern_.emplace("(.*\\.)?(" + text + ")");
    } catch (const Error&) {
      pattern_.reset();
    }
  }

  bool stands_for(std::string_view module) const {
    return module.ends_with(ending_) || module == std::string_view(ending_).substr(1) || (pattern_ && pattern_->matches(module));
  }

 private:
  std::string ending_;
  std::optional<Pattern> pattern_;
};

// What PEFT writes about an adapter, in adapter_config.json or, each name with its part's prefix, in the metadata.
struct PeftConfig {
  std::optional<double> alpha, rank;
  bool rank_stabilised = false;
  std::vector<std::pair<ModulePattern, double>> alpha_pattern;

  double alpha_of(const std::string& module, double otherwise) const {
    for (const auto& [pattern, value] : alpha_pattern)
      if (pattern.stands_for(module)) return value;
    return alpha.value_or(otherwise);
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

// Why the parts of a module are not enough to apply it.
std::optional<Error> incomplete(const AdapterModule& m) {
  const auto has = [&](const char* role) { return m.part(role) != nullptr; };
  const char* missing = nullptr;
  const auto need = [&](bool there, const char* role) {
    if (!there && !missing) missing = role;
  };
  switch (m.kind) {
    case K::Lora: need(has("down"), "down"), need(has("up"), "up"); break;
    case K::LoHa:
      for (const char* role : {"w1_a", "w1_b", "w2_a", "w2_b"}) need(has(role), role);
      break;
    case K::LoKr:
      need(has("w1") || has("w1_a"), "w1"), need(has("w2") || has("w2_a"), "w2");
      need(!has("w1_a") || has("w1_b"), "w1_b"), need(!has("w2_a") || has("w2_b"), "w2_b");
      break;
    case K::Oft:
      need(has("blocks"), "blocks");
      if (has("blocks") && m.part("blocks")->shape.rank() != 3)
        return Error(ErrorCode::Incompatible, fmt::format("{}: BOFT adapters are not supported", printable(m.name)));
      break;
    case K::Difference: need(has("diff"), "diff"); break;
    case K::Glora:
    case K::Ia3: break;  // refused by their keys
  }
  if (!missing) return std::nullopt;
  return Error(ErrorCode::BadFile,
               fmt::format("{} has {} but its {} is missing", printable(m.name), printable(m.first_key()), missing));
}

struct Numbers {
  const StoredTensor *alpha = nullptr, *scale = nullptr;
};

struct Listing {
  AdapterFile file;
  std::map<std::string, Numbers> numbers;  // by module
  size_t biases = 0;
};

Listing list(std::shared_ptr<const WeightSource> source) {
  Listing result{.file = {.source = source}};
  AdapterFile& file = result.file;
  std::map<std::string, AdapterModule> modules;
  const auto refuse = [&](ErrorCode code, std::string why) {
    if (!file.refusal) file.refusal.emplace(code, why);
  };
  for (const StoredTensor& t : source->tensors()) {
    const auto split = split_key(t.name);
    if (split && split->suffix->style) {
      file.is_adapter = true;
      if (file.key_style.empty()) file.key_style = split->suffix->style;
    }
    if (belongs_to_text_encoder(t.name)) {
      file.text_encoder_keys.push_back(t.name);
      continue;
    }
    if (!split) {
      file.unknown_keys.push_back(t.name);
      continue;
    }
    const Suffix& s = *split->suffix;
    const std::string_view role = s.role;
    if (s.unsupported)
      refuse(ErrorCode::Incompatible, fmt::format("{} is part of {}, which is not supported", printable(t.name), s.unsupported));
    if (split->bias || role == "bias") ++result.biases;
    else if (role == "alpha") result.numbers[split->module].alpha = &t;
    else if (role == "scale") result.numbers[split->module].scale = &t;
    else {
      AdapterModule& m = modules[split->module];
      if (role != "magnitude") m.kind = s.kind;
      if (!m.parts.emplace(s.role, &t).second && !s.unsupported)
        refuse(ErrorCode::BadFile,
               fmt::format("{} and {} are the same part of a layer", printable(m.part(s.role)->name), printable(t.name)));
    }
  }
  for (auto& [name, m] : modules) {
    m.name = name;
    if (auto why = incomplete(m); why && !file.refusal) file.refusal = std::move(why);
    file.modules.push_back(std::move(m));
  }
  for (const auto& [name, pair] : result.numbers)
    if (!modules.contains(name))
      for (const StoredTensor* t : {pair.alpha, pair.scale})
        if (t) file.unknown_keys.push_back(t->name);
  return result;
}

// Sizes come from outside: a size larger than any layer must not overflow a product.
int64_t bounded(int64_t n) { return std::min(n, int64_t{1} << 31); }

// A part as a matrix [rows, columns]; factors of 1×1 convolutions count as matrices. 0 where the part is absent.
int64_t rows_of(const StoredTensor* t) { return t && t->shape.rank() >= 1 ? bounded(t->shape[0]) : t ? 1 : 0; }
int64_t columns_of(const StoredTensor* t) { return t ? bounded(t->shape.numel() / std::max<int64_t>(1, rows_of(t))) : 0; }

}  // namespace

const char* name_of(AdapterKind kind) {
  switch (kind) {
    case K::Lora: return "LoRA";
    case K::LoHa: return "LoHa";
    case K::LoKr: return "LoKr";
    case K::Oft: return "OFT";
    case K::Difference: return "difference";
    case K::Glora: return "GLoRA";
    case K::Ia3: return "IA3";
  }
  return "";
}

const StoredTensor* AdapterModule::part(const std::string& role) const {
  const auto at = parts.find(role);
  return at == parts.end() ? nullptr : at->second;
}

std::string AdapterModule::first_key() const { return parts.empty() ? name : parts.begin()->second->name; }

AdapterModule::Extents AdapterModule::extents() const {
  const auto factor = [&](const std::string& w) {
    return part(w) ? Extents{rows_of(part(w)), columns_of(part(w))}
                   : Extents{rows_of(part(w + "_a")), columns_of(part(w + "_b"))};
  };
  switch (kind) {
    case K::Lora: return {rows_of(part("up")), columns_of(part("down"))};
    case K::LoHa: return {rows_of(part("w1_a")), columns_of(part("w1_b"))};
    case K::LoKr: return {factor("w1").out * factor("w2").out, factor("w1").in * factor("w2").in};
    case K::Oft: {
      const StoredTensor* blocks = part("blocks");
      return {blocks && blocks->shape.rank() == 3 ? rows_of(blocks) * bounded(blocks->shape[1]) : 0, 0};
    }
    case K::Difference: return {rows_of(part("diff")), columns_of(part("diff"))};
    case K::Glora:
    case K::Ia3: return {};
  }
  return {};
}

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

AdapterFile list_adapter(std::shared_ptr<const WeightSource> source) { return list(std::move(source)).file; }

AdapterFile read_adapter(std::shared_ptr<const WeightSource> source, const std::string& config, const Log& log) {
  auto [file, numbers, biases] = list(source);
  if (file.refusal) throw *file.refusal;
  const PeftConfig peft = peft_config_of(*source, config);
  // Every pattern is tried with every layer. Real adapters have some hundreds of each.
  constexpr size_t kMostTrials = 10'000'000;
  if (peft.alpha_pattern.size() * file.modules.size() > kMostTrials)
    fail(ErrorCode::BadFile, "the adapter's configuration has {} patterns for {} layers, which is too much to compare",
         peft.alpha_pattern.size(), file.modules.size());
  for (AdapterModule& m : file.modules) {
    if (const auto at = numbers.find(m.name); at != numbers.end()) {
      if (at->second.alpha) m.alpha = number_in(*at->second.alpha);
      if (at->second.scale) m.factor = number_in(*at->second.scale);
    } else if (peft.alpha || !peft.alpha_pattern.empty()) {
      m.alpha = peft.alpha_of(m.name, static_cast<double>(m.rank()));
      m.rank_stabilised = peft.rank_stabilised;
      // PEFT divides by the configured rank even where both factors of a LoKr are whole.
      if (m.kind == K::LoKr && m.rank() == 0 && peft.rank.value_or(0) > 0) m.factor = *m.alpha / *peft.rank;
    }
    if (m.alpha == 0.0 && m.kind != K::Oft) {
      log.warn("{}: alpha is 0, which makes no sense; the rank is used instead", printable(m.name));
      m.alpha.reset();
    }
  }
  if (biases > 0) log.warn("{}: {} changes of biases are ignored; the transformer has none", source->description(), biases);
  return std::move(file);
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
