#pragma once

#include <string>

namespace flux2 {

// All of standard input, at most 16 MiB of it. Throws Cancelled when a signal came while waiting.
std::string read_standard_input();

}  // namespace flux2
