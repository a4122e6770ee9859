#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "record/image_prompt_text.h"

// The adapters, regions and image prompts of a job request: lists of JSON objects that become texts as the options of the command
// line have them. What is wrong with them is InvalidArgument.
namespace flux2 {

// "name", or {"name": …, "weight": …, "layers": …}
std::string adapter_text(const Json& json);

// [{"prompt": …, "box": [x, y, w, h] or "mask": image, "references": [images]}]
std::vector<std::string> region_texts(const Json& json);

// Calls `use` for every image of the regions of a checked request. `where` is its place in the request: "regions[0].mask".
void for_region_images(Json& regions, const std::function<void(Json& image, const char* kind, const std::string& where)>& use);

// {"image": …, "strength": …, "from": …, "to": …} with the path of the image's file.
ImagePromptText image_prompt_of(const Json& json, std::string file);
void check_image_prompts(const Json& json);  // a list of them

}  // namespace flux2
