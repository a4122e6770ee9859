#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace flux2 {

// One prompt with the settings that hold for it alone.
struct PromptLine {
  std::string prompt;
  SettingLayer settings;
  bool literal = false;  // from a picture: its choices were made when that was made
};

// Lines of a prompt file: # comments and blank lines are skipped; a line may end in options of its own, --w --h --s
// --d --g --l --n --ci --o --lora. Throws InvalidArgument with the line's number.
std::vector<PromptLine> parse_prompt_file(std::string_view text);

// From --prompt-file, -p (where - reads standard input) or the argument. Throws InvalidArgument when there is none or
// more than one; `optional` allows none.
std::vector<PromptLine> read_prompts(const Invocation& run, bool optional);

}  // namespace flux2
