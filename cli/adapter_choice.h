#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "engine/engine.h"

namespace flux2 {

// "style.safetensors:0.7" → the file and its strength; a name alone is looked for in the model folders and their `loras`.
AdapterChoice adapter_choice(const std::string& text, const Invocation& run);

// What --lora asks for, in order.
std::vector<AdapterChoice> adapter_choices(const Invocation& run);

// Takes <lora:NAME:STRENGTH> out of a prompt; `found` gets "NAME:STRENGTH" for each.
std::string without_lora_tags(const std::string& prompt, std::vector<std::string>& found);

}  // namespace flux2
