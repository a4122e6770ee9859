#pragma once

#include <cstdint>
#include <string>

namespace flux2 {

std::string byte_text(uint64_t bytes);  // "7.22 GiB", "312 KiB", "17 bytes"

}  // namespace flux2
