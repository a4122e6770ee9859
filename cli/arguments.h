#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/settings.h"
#include "cli/options.h"

namespace flux2 {

// A parsed command line. Flags have the value "true", once for each time they are given.
struct Arguments {
  struct Given {
    std::vector<std::string> values;
    std::string spelled;  // the option as it was typed when that is another program's name for it, else "--name"
  };
  std::map<std::string, Given> options;  // by long name
  std::vector<std::string> positional;
};

// Throws InvalidArgument for an option that does not exist (naming the nearest one), lacks its value or is not available yet.
// Dashes and underscores in long names are equivalent.
Arguments parse_arguments(const std::vector<OptionGroup>& groups, const std::vector<ForeignOption>& foreign,
                          std::vector<std::string> words);

SettingLayer layer_of(const Arguments& arguments);

}  // namespace flux2
