#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "image/image.h"
#include "record/generation_record.h"
#include "server/api/sdapi_request.h"
#include "server/jobs/job_queue.h"

namespace flux2 {

// The generation parameters inside an image file, as that program writes them; empty when there are none.
std::string sdapi_infotext(std::span<const std::byte> image);

// The object that `info` of an answer holds as a text. `infotexts` belong to the images of the job in their order.
Json sdapi_info(const SdapiRequest& request, const Job& job, const std::vector<std::string>& infotexts);

// The answer of txt2img and img2img: the images that are there, also of a job that was interrupted.
Json sdapi_images_answer(const SdapiRequest& request, const Json& parameters, const Job& job, AssetStore& assets);

// The answer of progress about a job, or about none. `preview` may be null.
Json sdapi_progress(const Job* job, bool is_loading, bool interrupted, const JobQueue::Preview* preview, int64_t now);

// png-info: what the metadata of an image says.
Json sdapi_png_info(std::span<const std::byte> image, const ImageLimits& limits);

// The canvas of img2img at another size: 0 stretches, 1 crops, 2 fills the rest with the border.
Image sdapi_resized(const Image& image, int width, int height, int64_t mode);
// A mask of that program as ours: where it has transparency, what is opaque is regenerated; otherwise what is white.
Image sdapi_mask(const Image& image);

}  // namespace flux2
