#include "hub/adapter_modules.h"

#include <algorithm>
#include <optional>
#include <string_view>

namespace flux2 {

namespace {

enum class Role {
  Down,
  Up,
  HadaOut,
  HadaIn,
  KronFull1,
  KronRows1,
  KronColumns1,
  KronFull2,
  KronRows2,
  KronColumns2,
  Difference,
  Mark
};

struct Suffix {
  std::string_view text;
  Role role;
  const char* kind;
  const char* style;
};

// Longer texts stand before those they begin with.
constexpr Suffix kSuffixes[] = {
    {".lora_linear_layer.down", Role::Down, "LoRA", "lora_linear_layer"},
    {".lora_linear_layer.up", Role::Up, "LoRA", "lora_linear_layer"},
    {".lora_magnitude_vector", Role::Mark, "DoRA", "lora_A/lora_B"},
    {".lora_A", Role::Down, "LoRA", "lora_A/lora_B"},
    {".lora_B", Role::Up, "LoRA", "lora_A/lora_B"},
    {".lora_down", Role::Down, "LoRA", "lora_down/lora_up"},
    {".lora_up", Role::Up, "LoRA", "lora_down/lora_up"},
    {".lora.down", Role::Down, "LoRA", "lora.down/lora.up"},
    {".lora.up", Role::Up, "LoRA", "lora.down/lora.up"},
    {"_lora.down", Role::Down, "LoRA", "lora.down/lora.up"},
    {"_lora.up", Role::Up, "LoRA", "lora.down/lora.up"},
    {".dora_scale", Role::Mark, "DoRA", ""},
    {".hada_w1_a", Role::HadaOut, "LoHa", "hada"},
    {".hada_w1_b", Role::HadaIn, "LoHa", "hada"},
    {".hada_w2_", Role::Mark, "LoHa", "hada"},
    {".lokr_w1_a", Role::KronRows1, "LoKr", "lokr"},
    {".lokr_w1_b", Role::KronColumns1, "LoKr", "lokr"},
    {".lokr_w1", Role::KronFull1, "LoKr", "lokr"},
    {".lokr_w2_a", Role::KronRows2, "LoKr", "lokr"},
    {".lokr_w2_b", Role::KronColumns2, "LoKr", "lokr"},
    {".lokr_w2", Role::KronFull2, "LoKr", "lokr"},
    {".oft_blocks", Role::Mark, "OFT", "oft"},
    {".oft_R", Role::Mark, "OFT", "oft"},
    {".a1.weight", Role::Mark, "GLoRA", "glora"},
    {".on_input", Role::Mark, "IA3", "ia3"},
    {".diff", Role::Difference, "difference", "diff"},
};

struct Split {
  std::string_view module;
  const Suffix* suffix;
};

std::optional<Split> split_key(std::string_view key) {
  for (const Suffix& s : kSuffixes) {
    const size_t at = key.find(s.text);
    if (at == std::string_view::npos || at == 0) continue;
    const std::string_view rest = key.substr(at + s.text.size());
    if (s.role == Role::Difference && !rest.empty()) continue;
    if (s.text.back() != '_' && !rest.empty() && rest[0] != '.') continue;
    return Split{key.substr(0, at), &s};
  }
  return std::nullopt;
}

bool belongs_to_text_encoder(std::string_view key) {
  for (std::string_view prefix : {"lora_te_", "lora_te1_", "lora_te2_", "text_encoder.", "text_encoder_2.", "te."})
    if (key.starts_with(prefix)) return true;
  return false;
}

// The factors of a Kronecker product as far as they have been seen.
struct Factors {
  int64_t rows1 = 0, columns1 = 0, rows2 = 0, columns2 = 0;
};

void note(AdapterModule& m, Factors& f, Role role, const Shape& shape) {
  if (shape.rank() < 2) return;
  const int64_t rows = shape[0], columns = shape.numel() / std::max<int64_t>(rows, 1);
  switch (role) {
    case Role::Down: m.rank = rows, m.in = columns; break;
    case Role::Up: m.out = rows; break;
    case Role::HadaOut: m.out = rows, m.rank = columns; break;
    case Role::HadaIn: m.in = columns; break;
    case Role::KronFull1: f.rows1 = rows, f.columns1 = columns; break;
    case Role::KronRows1: f.rows1 = rows; break;
    case Role::KronColumns1: f.columns1 = columns; break;
    case Role::KronFull2: f.rows2 = rows, f.columns2 = columns; break;
    case Role::KronRows2: f.rows2 = rows, m.rank = columns; break;
    case Role::KronColumns2: f.columns2 = columns; break;
    case Role::Difference: m.out = rows, m.in = columns; break;
    case Role::Mark: break;
  }
}

}  // namespace

AdapterModules read_adapter_modules(const WeightSource& source) {
  AdapterModules result;
  std::map<std::string, Factors> factors;
  for (const StoredTensor& t : source.tensors()) {
    const auto split = split_key(t.name);
    if (!split) {
      ++result.other_tensors;
      continue;
    }
    ++result.tensors;
    if (belongs_to_text_encoder(t.name)) {
      ++result.text_encoder_keys;
      continue;
    }
    if (result.kind.empty() || std::string_view(split->suffix->kind) == "DoRA") result.kind = split->suffix->kind;
    if (result.style.empty()) result.style = split->suffix->style;
    std::string name(split->module);
    std::replace(name.begin(), name.end(), '.', '_');
    AdapterModule& m = result.modules[name];
    if (m.first_key.empty()) m.first_key = t.name;
    note(m, factors[name], split->suffix->role, t.shape);
  }
  for (const auto& [name, f] : factors) {
    if (f.rows1 * f.rows2 > 0) result.modules[name].out = f.rows1 * f.rows2;
    if (f.columns1 * f.columns2 > 0) result.modules[name].in = f.columns1 * f.columns2;
  }
  return result;
}

}  // namespace flux2
