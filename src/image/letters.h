#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "image/image.h"

namespace flux2 {

// Small letters for labels on sheets: printable ASCII; any other character is a hollow box.
constexpr int kLetterWidth = 6, kLineHeight = 11;  // pixels from one letter, one line, to the next, at scale 1

// The text in lines of at most `columns` letters, broken at spaces where there are any.
std::vector<std::string> wrapped_text(std::string_view text, int columns);

// One line whose upper left corner is at (x, y); what lies outside of the image (RGB) is not drawn.
void draw_text(Image& image, int x, int y, std::string_view text, int scale = 1, std::array<uint8_t, 3> colour = {0, 0, 0});

}  // namespace flux2
