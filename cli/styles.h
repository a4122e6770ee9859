#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/config_file.h"

namespace flux2 {

// Prompt templates by name; {prompt} is where the prompt goes. Those of the files' [styles] sections come on top of the
// built-in ones, the first file's above the second's.
using Styles = std::map<std::string, std::string>;
Styles all_styles(const ConfigFile& project, const ConfigFile& user);

// Throws InvalidArgument, naming the nearest, for a style that does not exist.
std::string apply_style(const Styles& styles, const std::string& name, const std::string& prompt);

}  // namespace flux2
