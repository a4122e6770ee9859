#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace flux2 {

constexpr size_t kMostImagePrompts = 16;

// An image as a prompt, as users write it: "FILE", "FILE:STRENGTH", "FILE:STRENGTH:FROM-TO" or "FILE:FROM-TO". A colon may be
// part of the file's name: what follows it counts only if it is a number or a range.
struct ImagePromptText {
  std::string file;
  double strength = 1;      // 0 to 2
  double from = 0, to = 1;  // the share of the steps in which it counts

  std::string text() const;  // which parse_image_prompt reads back
};

// Throws InvalidArgument if there is no file, or if a number is out of its range.
ImagePromptText parse_image_prompt(std::string_view text);

// The same checks for numbers from elsewhere.
void check_image_prompt_numbers(double strength, double from, double to);

}  // namespace flux2
