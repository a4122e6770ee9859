#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "app/prepare.h"
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

// A checked request as settings, with images as the paths of their files and adapters as the files that their names mean.
SettingLayer settings_of_job(const Json& request, const AssetStore& assets, const AppContext& context);

// The opposite, for a client: the native request of a spec. `image` turns the path of an image into what the request contains.
// Fields that only the server's own command line may set are listed in `left_out`.
Json job_request_of(const RequestSpec& spec, const std::string& kind,
                    const std::function<std::string(const std::string& path)>& image, std::vector<std::string>& left_out);

bool is_image_kind(std::string_view kind);  // generate, edit or inpaint
bool is_text_kind(std::string_view kind);   // rewrite or describe: see text_request.h
Task task_of_kind(std::string_view kind);

// Equal for checked requests that may run as one batch: they differ in prompts, seeds and what is about the job alone. Empty if a
// request cannot share a batch.
std::string merge_key_of(const Json& request);

// Stores an image that a request contains as base64 or a data URL, and returns "asset:ID". "asset:ID" is checked and returned
// unchanged. `param` names the field in errors (HttpError 400 `invalid_image_file`).
std::string stored_image(const std::string& text, const std::string& kind, AssetStore& assets, const AppContext& context,
                         const std::string& param);

// Every member that a job request may have, for the OpenAPI document: name, JSON type and help.
struct JobMember {
  std::string name, type, help;
  std::vector<std::string> choices = {};
};
std::vector<JobMember> job_members();

}  // namespace flux2
