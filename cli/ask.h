#pragma once

#include <string>

#include "cli/command.h"

namespace flux2 {

// Asks on stderr and reads the answer from standard input. With --yes it does not ask. Anything but y or yes means no.
bool confirmed(Invocation& run, const std::string& question);

}  // namespace flux2
