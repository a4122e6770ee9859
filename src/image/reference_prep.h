#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "image/image.h"

namespace flux2 {

// Which program's rules turn an image into a reference.
enum class ReferencePrep {
  Ours,       // rotated as EXIF says, converted to sRGB, composited over white; at most 2024² pixels alone, 1024² with others
  Bfl,        // as stored, alpha ignored; the same limits
  Diffusers,  // rotated as EXIF says, alpha ignored; always at most 1024² pixels
};

ReferencePrep reference_prep_named(std::string_view name);  // "ours", "bfl", "diffusers"

struct ReferenceRules {
  ReferencePrep prep = ReferencePrep::Ours;
  std::optional<int64_t> max_pixels;  // replaces the limit
  bool resize = true;                 // false: no limit but that of what can be encoded

  // How to read the file: the reference programs ignore its colour profile, and BFL's also its orientation.
  bool turns_upright() const { return prep != ReferencePrep::Bfl; }
  bool converts_colours() const { return prep == ReferencePrep::Ours; }
};

// RGB whose sides are multiples of 16: scaled down by area with Lanczos when above the limit, then cut to its middle.
// `count` is how many references the request has. Sides under 64 and ratios beyond 8:1 are InvalidArgument.
Image prepare_reference(const Image& picture, const ReferenceRules& rules, size_t count);

}  // namespace flux2
