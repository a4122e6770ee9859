#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace flux2 {

// The patterns by which tokenizers cut text before merging, as their files write them. Mistral has two: that of its own
// tekken.json, and that of the tokenizer.json published with the models, which FLUX.2-dev was trained with.
enum class SplitRule { Qwen, Mistral, Tekken };

inline constexpr std::string_view kQwenSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

inline constexpr std::string_view kMistralSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kTekkenSplitPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string_view pattern_of(SplitRule rule);
std::optional<SplitRule> split_rule_of(std::string_view pattern);  // nothing for any other pattern

// Cuts valid UTF-8 into the successive matches of the rule's pattern. Every byte belongs to one piece, in order.
std::vector<std::string_view> pretokenize(std::string_view text, SplitRule rule = SplitRule::Qwen);

}  // namespace flux2
