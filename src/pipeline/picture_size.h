#pragma once

#include <string>
#include <string_view>

#include "base/log.h"

namespace flux2 {

struct PictureSize {
  int width = 0, height = 0;
};

// "768x512", "768" for a square, or one of square, landscape, portrait, 1:1, 4:3, 3:4, 3:2, 2:3, 16:9, 9:16, 21:9.
PictureSize parse_picture_size(std::string_view text);

// The size that is used: sides are rounded to the nearest multiple of 16 (ties upward) with a warning. With `strict` this is an
// error that names the nearest size. Sides must end up within 64…4096; more than 4.2 megapixels is a warning.
// `largest` is for callers that checked a limit of their own.
constexpr int kUsualSide = 4096;
PictureSize valid_picture_size(const PictureSize& wanted, bool strict, const Log& log, int largest = kUsualSide);

// The size of an image that follows another one: the same size, but at most 4.2 megapixels and 4096 per side, then rounded down
// to multiples of 16.
PictureSize size_like(const PictureSize& picture);

}  // namespace flux2
