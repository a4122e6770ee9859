#include "record/image_prompt_text.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

constexpr double kLargestStrength = 2;

// The number at the beginning of a text, which is taken off.
std::optional<double> take_number(std::string_view& text) {
  double value = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

std::optional<double> number_of(std::string_view text) {
  const auto value = take_number(text);
  return text.empty() ? value : std::nullopt;
}

std::optional<std::pair<double, double>> range_of(std::string_view text) {
  const auto from = take_number(text);
  if (!from || !text.starts_with('-')) return std::nullopt;
  const auto to = number_of(text.substr(1));
  return to ? std::optional(std::pair(*from, *to)) : std::nullopt;
}

// Takes ":PIECE" off the end of a text if `read` understands the piece.
template <class Read>
auto take_last(std::string_view& text, Read read) -> decltype(read(text)) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos) return std::nullopt;
  const auto value = read(text.substr(colon + 1));
  if (value) text = text.substr(0, colon);
  return value;
}

}  // namespace

std::string ImagePromptText::text() const {
  const bool whole = from == 0 && to == 1;
  return fmt::format("{}:{}{}", file, strength, whole ? "" : fmt::format(":{}-{}", from, to));
}

void check_image_prompt_numbers(double strength, double from, double to) {
  check(strength >= 0 && strength <= kLargestStrength, "the strength of an image prompt is a number from 0 to {}, not {}",
        kLargestStrength, strength);
  check(from >= 0 && from < to && to <= 1,
        "an image prompt counts in a part of the steps, from 0 (the first) to 1 (the last), not from {} to {}", from, to);
}

ImagePromptText parse_image_prompt(std::string_view text) {
  ImagePromptText prompt;
  std::string_view rest = text;
  if (const auto range = take_last(rest, range_of)) std::tie(prompt.from, prompt.to) = *range;
  if (const auto strength = take_last(rest, number_of)) prompt.strength = *strength;
  check(!rest.empty(), "\"{}\" names no image; write FILE or FILE:STRENGTH", printable(text));
  check_image_prompt_numbers(prompt.strength, prompt.from, prompt.to);
  prompt.file = rest;
  return prompt;
}

}  // namespace flux2
