#pragma once

#include <filesystem>

#include "engine/engine.h"
#include "model/image_prompt.h"

namespace flux2 {

// The file whose network turns image prompts of later requests into input of the session's transformer; an empty path: none. A
// file that is in use already is not read again unless it has changed. Throws Incompatible if it was made for another
// transformer.
void use_image_prompt(ModelSession& session, const std::filesystem::path& file);

}  // namespace flux2
