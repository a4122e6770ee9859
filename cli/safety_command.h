#pragma once

#include "cli/command.h"
#include "cli/options.h"

namespace flux2 {

int run_safety(Invocation& run);  // flux2 safety
std::vector<OptionGroup> safety_options();
const std::vector<Command>& safety_actions();  // check

}  // namespace flux2
