#pragma once

#include <bit>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace flux2 {

// Conversions between UTF-8, which we use everywhere, and what metadata in images is stored as.

std::optional<std::string> utf8_to_latin1(std::string_view utf8);  // nothing when it does not fit or is not UTF-8
std::string latin1_to_utf8(std::string_view latin1);

std::string utf8_to_utf16be(std::string_view utf8);                    // faults become U+FFFD
std::string utf16_to_utf8(std::string_view bytes, std::endian order);  // lone surrogates become U+FFFD

// Text of unknown kind: UTF-8 when it is valid, else read as Latin-1.
std::string any_to_utf8(std::string_view text);

}  // namespace flux2
