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
  bool literal = false;  // from an image: its wildcards were expanded when the image was made
};

// The lines of a prompt file. Skips blank lines and comments (#). A line may end with its own options, as in musubi-tuner: --w
// --h --s --d --g --l --n --ci --o --lora, and also --image-prompt (--ip), --image-prompt-adapter and --image-prompt-encoder.
// Throws InvalidArgument with the line number.
std::vector<PromptLine> parse_prompt_file(std::string_view text);

// Removes every <lora:NAME:W> from a prompt and adds the adapter to the settings of its line. Paths are refused.
void take_lora_tags(std::vector<PromptLine>& prompts, const AppContext& context);

}  // namespace flux2
