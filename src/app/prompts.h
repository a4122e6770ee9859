#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/settings.h"

namespace flux2 {

// One prompt with its own settings.
struct PromptLine {
  std::string prompt;
  SettingLayer settings;
  bool literal = false;  // from an image: its wildcards were expanded when that was made
};

// Lines of a prompt file: # comments and blank lines are skipped; a line may end in options of its own, --w --h --s
// --d --g --l --n --ci --o --lora, as musubi-tuner has them. Throws InvalidArgument with the line's number.
std::vector<PromptLine> parse_prompt_file(std::string_view text);

// <lora:NAME:W> in a prompt becomes an adapter of its line.
void take_lora_tags(std::vector<PromptLine>& prompts);

}  // namespace flux2
