#pragma once

#include <string>
#include <vector>

#include "app/context.h"
#include "hub/adapter_tools.h"
#include "record/request_spec.h"

namespace flux2 {

// "style.safetensors:0.7:double_blocks" → the file, its strength and the layers it may change (hub/adapter_tools.h). Strength and
// layers are optional. A plain name is looked up in the registry, which may have a default strength for it, then in the
// model folders and their `loras` folders.
AdapterChoice adapter_choice(const std::string& text, const AppContext& context);

// The same for an adapter that a prompt or a record names: it must be a registered name or the name of a file in the model
// folders, never a path. `origin` is for messages: "<lora:…> in the prompt".
AdapterChoice adapter_by_name(const std::string& text, const std::string& origin, const AppContext& context);
std::string text_of(const AdapterChoice& choice);  // which adapter_choice understands

// The adapters a request asks for, in order.
std::vector<AdapterChoice> adapter_choices(const RequestSpec& spec, const AppContext& context);

// Combines adapters for one image with those for all images. If both name the same adapter, also by another name, the strength
// for the one image is used.
std::vector<std::string> adapters_beside(const std::vector<std::string>& all, const std::vector<std::string>& own,
                                         const AppContext& context);

// Takes <lora:NAME:STRENGTH> out of a prompt; `found` gets "NAME:STRENGTH" for each. The time is linear in the prompt.
std::string without_lora_tags(const std::string& prompt, std::vector<std::string>& found);

}  // namespace flux2
