#include "weights/name_rules.h"

#include <algorithm>

namespace flux2 {

namespace {

constexpr int kLastLevel = 3;

struct Placeholder {
  enum class Kind { Index, Level, ReversedLevel, WeightOrBias, Layer } kind;
  size_t length;  // of its spelling in the pattern
};

Placeholder placeholder_at(std::string_view pattern) {
  if (pattern.starts_with("{i}")) return {Placeholder::Kind::Index, 3};
  if (pattern.starts_with("{level}")) return {Placeholder::Kind::Level, 7};
  if (pattern.starts_with("{3-level}")) return {Placeholder::Kind::ReversedLevel, 9};
  if (pattern.starts_with("{wb}")) return {Placeholder::Kind::WeightOrBias, 4};
  return {Placeholder::Kind::Layer, 7};
}

bool is_index(std::string_view text) {
  if (text.empty() || text.size() > 6 || (text.size() > 1 && text[0] == '0')) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

bool is_level(std::string_view text) { return text.size() == 1 && text[0] >= '0' && text[0] <= '0' + kLastLevel; }

bool fits(Placeholder::Kind kind, std::string_view text) {
  switch (kind) {
    case Placeholder::Kind::Index: return is_index(text);
    case Placeholder::Kind::Level:
    case Placeholder::Kind::ReversedLevel: return is_level(text);
    case Placeholder::Kind::WeightOrBias: return text == "weight" || text == "bias";
    case Placeholder::Kind::Layer: return text == "norm1" || text == "conv1" || text == "norm2" || text == "conv2";
  }
  return false;
}

std::string reversed(std::string_view level) { return std::string(1, static_cast<char>('0' + kLastLevel - (level[0] - '0'))); }

}  // namespace

std::optional<std::vector<std::string>> match_name(std::string_view pattern, std::string_view name) {
  std::vector<std::string> values;
  while (!pattern.empty()) {
    const size_t literal = std::min(pattern.find('{'), pattern.size());
    if (!name.starts_with(pattern.substr(0, literal))) return std::nullopt;
    pattern.remove_prefix(literal);
    name.remove_prefix(literal);
    if (pattern.empty()) break;
    const Placeholder hole = placeholder_at(pattern);
    const std::string_view value = name.substr(0, name.find('.'));
    if (!fits(hole.kind, value)) return std::nullopt;
    values.push_back(hole.kind == Placeholder::Kind::ReversedLevel ? reversed(value) : std::string(value));
    pattern.remove_prefix(hole.length);
    name.remove_prefix(value.size());
  }
  if (!name.empty()) return std::nullopt;
  return values;
}

std::string fill_name(std::string_view pattern, const std::vector<std::string>& values) {
  std::string name;
  for (size_t next = 0; !pattern.empty();) {
    const size_t literal = std::min(pattern.find('{'), pattern.size());
    name += pattern.substr(0, literal);
    pattern.remove_prefix(literal);
    if (pattern.empty()) break;
    const Placeholder hole = placeholder_at(pattern);
    name += hole.kind == Placeholder::Kind::ReversedLevel ? reversed(values[next]) : values[next];
    ++next;
    pattern.remove_prefix(hole.length);
  }
  return name;
}

}  // namespace flux2
