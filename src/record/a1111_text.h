#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/generation_record.h"

namespace flux2 {

// The generation parameters that the Stable Diffusion web UI made common: the prompt, a line "Negative prompt: …",
// and a last line of "Key: value" pairs.
struct A1111Text {
  std::string prompt, negative;
  std::vector<std::pair<std::string, std::string>> pairs;  // values unquoted, in file order

  const std::string* find(std::string_view key) const;
};

std::string to_a1111(const GenerationRecord& record, bool is_private = false);

// Any text: without a line of pairs all of it is the prompt.
A1111Text parse_a1111(std::string_view text);

// Values that we do not understand are left at their defaults.
GenerationRecord record_from_a1111(const A1111Text& text);

}  // namespace flux2
