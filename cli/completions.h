#pragma once

#include <string>
#include <vector>

#include "cli/command.h"

namespace flux2 {

// What may follow an option or stand as an argument.
struct Completed {
  std::vector<std::string> words;
  std::string models;  // names of registered models of this type ("main", "lora", "any"); empty: none
  bool files = false, folders = false;

  bool empty() const { return words.empty() && models.empty() && !files && !folders; }
  bool operator==(const Completed&) const = default;
};
Completed values_of(const OptionSpec& option);

// What the arguments of a command may be: the first one, and those after it.
struct CompletedArguments {
  Completed first, others;
};
CompletedArguments arguments_of(const Command& command, const Command* parent = nullptr);

// A completion script, made from the tables of commands and options. Names of models come from `flux2 models list --names`.
std::string bash_completion();
std::string zsh_completion();
std::string fish_completion();

}  // namespace flux2
