#pragma once

#include <string>
#include <vector>

#include "app/context.h"
#include "hub/open_adapter.h"
#include "record/request_spec.h"

namespace flux2 {

// "style.safetensors:0.7:double_blocks" → the file, its strength and the layers it may change (hub/open_adapter.h), where the
// latter two may be left out. A name alone is looked for in the registry, which may know a strength for it, then in the model
// folders and their `loras`.
AdapterChoice adapter_choice(const std::string& text, const AppContext& context);
std::string text_of(const AdapterChoice& choice);  // which adapter_choice understands

// The adapters a request asks for, in order.
std::vector<AdapterChoice> adapter_choices(const RequestSpec& spec, const AppContext& context);

// Adapters named for one picture beside those named for all: one that both name has the strength it is given here.
std::vector<std::string> adapters_beside(const std::vector<std::string>& all, const std::vector<std::string>& own);

// Takes <lora:NAME:STRENGTH> out of a prompt; `found` gets "NAME:STRENGTH" for each.
std::string without_lora_tags(const std::string& prompt, std::vector<std::string>& found);

}  // namespace flux2
