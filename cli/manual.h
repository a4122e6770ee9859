#pragma once

#include <string>

#include "cli/command.h"

namespace flux2 {

// Sources of manual pages for man(1). The page of the program lists commands, environment variables and exit statuses; the page
// of a command is called flux2-generate, flux2-models-install.
std::string program_manual();
std::string command_manual(const Command& command, const Command* parent = nullptr);

}  // namespace flux2
