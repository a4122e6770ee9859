#pragma once

#include <string>
#include <vector>

namespace flux2 {

class Shell;

// Runs the command that a line is: its first word, bare or behind a !, with arguments that fit. A line whose arguments do not
// fit is a prompt ("open sea at night"), unless it begins with !: then it is a mistake. False when it is no command.
bool run_shell_command(Shell& shell, const std::string& line);

std::vector<std::string> shell_command_names();

}  // namespace flux2
