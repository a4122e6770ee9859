#pragma once

#include <string>

#include "cli/command.h"

namespace flux2 {

// Asks on stderr and reads the answer from standard input; --yes answers for the person. Anything but y or yes is no.
bool confirmed(Invocation& run, const std::string& question);

}  // namespace flux2
