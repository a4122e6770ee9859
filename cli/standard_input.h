#pragma once

#include <cstddef>
#include <string>

namespace flux2 {

// All of standard input; InvalidArgument when it holds more than `limit` bytes. Throws Cancelled when a signal came while
// waiting.
std::string read_standard_input(size_t limit = size_t{16} << 20);

inline constexpr size_t kLargestInputImage = size_t{512} << 20;  // bytes of an image on standard input

}  // namespace flux2
