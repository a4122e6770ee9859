#pragma once

#include <string>
#include <string_view>

namespace flux2 {

// The text in small letters, so that texts which differ in case alone compare equal: Latin, Greek, Cyrillic and Armenian letters
// with a simple pair of cases. Malformed UTF-8 becomes U+FFFD.
std::string folded(std::string_view text);

}  // namespace flux2
