#pragma once

#include <string>
#include <vector>

namespace flux2 {

class Shell;

// Runs a line as a command: its first word, optionally after a !, with valid arguments. A line whose arguments are invalid is a
// prompt ("open sea at night"), unless it starts with !, which makes it an error. Returns false if the line is not a command.
bool run_shell_command(Shell& shell, const std::string& line);

std::vector<std::string> shell_command_names();

}  // namespace flux2
