#pragma once

#include <string>
#include <vector>

#include "base/log.h"
#include "cli/config_file.h"

namespace flux2 {

// "generate.steps" and so on: every key that some command reads, sorted.
const std::vector<std::string>& config_keys();

// Whether a key may stand in a configuration file: one of config_keys(), a style, or part of a section that belongs to
// later versions.
bool is_config_key(const std::string& key);

// One warning for each key nobody reads, with the nearest that somebody does.
void warn_unknown_keys(const ConfigFile& file, const Log& log);

}  // namespace flux2
