#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/options.h"

namespace flux2 {

// The actions of `flux2 client`, each a command of its own.
const std::vector<Command>& client_actions();
std::vector<OptionGroup> client_options();
std::vector<OptionGroup> with_server_options(std::vector<OptionGroup> groups);  // url and api-key first
int run_client(Invocation& run);                                                // without an action

}  // namespace flux2
