#pragma once

#include <vector>

#include "cli/command.h"
#include "cli/options.h"

namespace flux2 {

// The actions of `flux2 keys`: who may use the server of this machine.
const std::vector<Command>& keys_actions();
std::vector<OptionGroup> keys_options();
int run_keys(Invocation& run);  // without an action

}  // namespace flux2
