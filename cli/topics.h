#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// A page of help about something other than a command, made from the tables that the program itself uses.
struct Topic {
  std::string name, summary;
  std::string (*text)();
};

const std::vector<Topic>& topics();
const Topic* find_topic(std::string_view name);

// An environment variable that is not the variable of a setting.
struct Variable {
  std::string names, meaning;
};
const std::vector<Variable>& other_variables();

}  // namespace flux2
