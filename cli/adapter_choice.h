#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/request.h"

namespace flux2 {

// "style.safetensors:0.7:double_blocks" → the file, its strength and the layers it may change (hub/adapter_tools.h), where the
// latter two may be left out. A name alone is looked for in the registry, which may know a strength for it, then in the model
// folders and their `loras`.
AdapterChoice adapter_choice(const std::string& text, const Invocation& run);
std::string text_of(const AdapterChoice& choice);  // which adapter_choice understands

// What --lora asks for, in order.
std::vector<AdapterChoice> adapter_choices(const Settings& settings, const Invocation& run);

// Adapters named for one picture beside those named for all: one that both name has the strength it is given here.
std::vector<std::string> adapters_beside(const std::vector<std::string>& all, const std::vector<std::string>& own);

// What a run opens: the adapters of its first request; those of the others at strength 0, to be checked before any picture.
std::vector<AdapterChoice> adapters_of(std::span<const ResolvedRequest> requests);

// Takes <lora:NAME:STRENGTH> out of a prompt; `found` gets "NAME:STRENGTH" for each.
std::string without_lora_tags(const std::string& prompt, std::vector<std::string>& found);

}  // namespace flux2
