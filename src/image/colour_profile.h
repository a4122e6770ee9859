#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "image/image.h"

namespace flux2 {

enum class ProfileUse {
  None,         // the profile is sRGB or so close to it that no 8-bit sample moves by more than 2
  Converted,    // the samples were changed
  Unsupported,  // a profile of another kind, such as CMYK, or a damaged one
  NotBuilt,     // this build has no lcms2
};

// Colour profiles are optional at build time: colour_profile.cpp or colour_profile_missing.cpp is built.
bool profiles_available();

// Converts the samples of an image with an ICC profile to sRGB; alpha does not change. RGB and grey profiles are supported. Uses
// perceptual rendering, like Pillow by default.
ProfileUse convert_to_srgb(Image& image, std::span<const std::byte> profile);

}  // namespace flux2
