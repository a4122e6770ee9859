#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace flux2 {

// The number that a whole text is: digits, a minus sign and, for floating-point types, what std::from_chars knows. Nothing if
// there is anything else (a plus sign, white space, a unit), or if the number does not fit the type.
template <class Number>
std::optional<Number> number_from_text(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, failure] = std::from_chars(text.data(), end, value);
  return failure == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

}  // namespace flux2
