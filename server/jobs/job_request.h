#pragma once

#include <string>
#include <vector>

#include "app/context.h"
#include "base/json.h"
#include "server/store/asset_store.h"

namespace flux2 {

// The native job request. Its members are fields of the request table under their own names, except those that name files or
// belong to the machine, and these:
//   references, canvas, mask   images: "asset:ID", a data URL or base64
//   regions                    [{"prompt": …, "box": [x, y, w, h] or "mask": image, "references": [images]}]
//   image_prompts              [{"image": image, "strength": …, "from": …, "to": …}]; image_prompt_adapter and
//                              image_prompt_encoder are names
//   count                      how many images (the field batch)
//   loras                      [{"name": …, "weight": …}]
//   output_format, output_quality, metadata, preview, sigmas, match, extend, align, in the forms that JSON suggests
//   priority, client_ref, tags, save, project_id, elements, scan_triggers: about the job, not the image
// Names of other studios (num_inference_steps, reference_images, …) are accepted with a warning.

// Checks a request without a model and stores its images as assets: they are replaced by "asset:ID". Draws the seed, so that a
// retry makes the same image. Throws HttpError 400 that lists all problems.
Json check_job_request(const Json& request, const std::string& kind, AssetStore& assets, const AppContext& context,
                       std::vector<std::string>& warnings);

}  // namespace flux2
