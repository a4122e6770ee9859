#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/context.h"
#include "hub/registry/model_record.h"

namespace flux2 {

// The two files that image prompts need.
enum class ImagePromptPart { Adapter, Encoder };
const char* name_of(ImagePromptPart part);

// Those that are registered and present, by name.
std::vector<ModelRecord> registered_image_prompt_parts(ImagePromptPart part, const AppContext& context);

// The file of a registered one, by name alone: for requests that may not name paths. `origin` is for messages. Throws NotFound.
std::filesystem::path registered_image_prompt_part(ImagePromptPart part, const std::string& name, const std::string& origin,
                                                   const AppContext& context);

// The file of weights in a folder: the usual name, else the only one. A file stands for itself.
std::filesystem::path file_of_weights(const std::filesystem::path& path);

// How records call a file of weights: by its own name, or by that of its folder if every such file is called "model".
std::string recorded_name(const std::filesystem::path& weights);

}  // namespace flux2
