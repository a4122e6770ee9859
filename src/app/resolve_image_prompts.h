#pragma once

#include <string>

#include "app/context.h"
#include "app/resolve.h"
#include "app/settings.h"

namespace flux2 {

// Reads the image prompts of a request, finds their adapter and encoder, and notes all of them in the record. Those of strength 0
// count as absent; without others, no adapter is needed. Throws if a file is missing, if one does not fit the other or the model,
// or if something else in the request rules out image prompts. Called last, because adapters decide how references are used.
void resolve_image_prompts(const RequestSpec& spec, const ModelFiles& model, const AppContext& context, const Log& log,
                           InputImages& images, ResolvedRequest& resolved);

// The image prompts, the adapter and the encoder of a recorded image, as far as `settings` give no others. They are found beside
// the image or in the current folder, by name and content, and adapter and encoder also among the registered ones, by content.
// Throws NotFound, naming what is missing.
void take_image_prompt_files(const GenerationRecord& record, const std::string& picture, const Settings& settings,
                             const AppContext& context, RequestSpec& spec);

}  // namespace flux2
