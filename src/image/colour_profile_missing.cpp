#include "image/colour_profile.h"

namespace flux2 {

bool profiles_available() { return false; }
ProfileUse convert_to_srgb(Image&, std::span<const std::byte>) { return ProfileUse::NotBuilt; }

}  // namespace flux2
