#pragma once

#include <string_view>
#include <vector>

namespace flux2 {

// The pattern by which Qwen tokenizers cut text before merging, as their files write it.
inline constexpr std::string_view kQwenSplitPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// Cuts valid UTF-8 into the successive matches of kQwenSplitPattern. Every byte belongs to one piece, in order.
std::vector<std::string_view> pretokenize(std::string_view text);

}  // namespace flux2
