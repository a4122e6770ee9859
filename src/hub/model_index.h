#pragma once

#include <filesystem>

#include "base/json.h"
#include "hub/model_files.h"

namespace flux2 {

// Takes from a model_index.json what the tensors of a model do not tell: its name, and in the section "flux2" steps,
// guidance, width, height, text_length and text_layers. What it leaves out stays as it is; `path` is for messages.
// Throws BadFile when a value makes no sense.
void apply_model_index(const Json& index, const std::filesystem::path& path, ModelFiles& files);

}  // namespace flux2
