#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// Standard alphabet with padding, no line breaks.
std::string base64_encode(std::span<const std::byte> bytes);

// Accepts text with or without padding; white space is skipped. Anything else throws InvalidArgument.
std::vector<std::byte> base64_decode(std::string_view text);

}  // namespace flux2
