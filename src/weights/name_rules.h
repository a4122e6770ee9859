#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weights/names.h"

namespace flux2 {

// One line of a name table, read in both directions. Patterns contain placeholders, matched in order:
//   {i} a number   {level} one of 0 to 3   {3-level} the same counted from the other end
//   {wb} weight or bias   {layer} norm1, conv1, norm2 or conv2
struct NameRule {
  enum class Values { Same, HalvesExchanged, Convolution1x1 };  // the last: [c, c, 1, 1] here, [c, c] in diffusers

  std::string_view canonical;
  std::vector<std::string_view> diffusers;  // several: their rows, one after the other, are the canonical rows
  Values values = Values::Same;
  std::string_view alias = {};   // another spelling met in files with canonical names
  std::string_view ggml = {};    // in GGUF files of language models
  std::string_view native = {};  // in Mistral's own files
};

std::span<const NameRule> rules_for(ModelPart part);

// Prefixes that some files put in front of all names of a part, with their replacements. A `*` matches one name component. Names
// without a prefix are tried first and are not listed.
struct PrefixRule {
  std::string_view prefix;
  std::string_view replacement = {};
};
std::span<const PrefixRule> prefixes_for(ModelPart part);

// The values of the placeholders when `name` has the form of `pattern`; `{3-level}` yields the level.
std::optional<std::vector<std::string>> match_name(std::string_view pattern, std::string_view name);
std::string fill_name(std::string_view pattern, const std::vector<std::string>& values);

}  // namespace flux2
