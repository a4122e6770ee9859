#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "image/image.h"

namespace flux2 {

// Whose rules turn a picture into a reference.
//   Ours       turned as EXIF says, colours converted to sRGB, shown over white; at most 2024² pixels when alone, 1024² beside
//   others Bfl        as stored, alpha ignored; the same limits Diffusers  turned as EXIF says, alpha ignored; at most 1024²
//   pixels always
enum class ReferencePrep { Ours, Bfl, Diffusers };

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
