#include "server/api/sdapi_answer.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "image/mask.h"
#include "image/metadata.h"
#include "image/resize.h"
#include "pipeline/noise.h"
#include "record/a1111_text.h"
#include "record/picture_metadata.h"
#include "server/api/waiting_client.h"

namespace flux2 {

namespace {

constexpr int64_t kMsPerSecond = 1000;

std::string time_stamp(int64_t ms) {
  const std::time_t seconds = static_cast<std::time_t>(ms / kMsPerSecond);
  return fmt::format("{:%Y%m%d%H%M%S}", fmt::gmtime(seconds));
}

// A member of an object, or what stands for it.
template <class T>
T member_or(const Json& object, const char* name, T fallback) {
  if (!object.is_object() || !object.contains(name)) return fallback;
  try {
    return object[name].get<T>();
  } catch (const Json::exception&) {  // null, or another type
    return fallback;
  }
}

const std::string* infotext_in(const ImageMetadata& metadata) {
  if (const std::string* text = metadata.find_text("parameters")) return text;
  return metadata.exif_comment.empty() ? nullptr : &metadata.exif_comment;
}

}  // namespace

std::string sdapi_infotext(std::span<const std::byte> image) {
  const ImageMetadata metadata = read_metadata(image);
  const std::string* text = infotext_in(metadata);
  return text ? *text : "";
}

Json sdapi_info(const SdapiRequest& request, const Job& job, const std::vector<std::string>& infotexts) {
  const size_t count = job.images.size();
  const std::string prompt = member_or<std::string>(request.native, "prompt", ""),
                    negative = member_or<std::string>(request.native, "negative", "");
  const Json model = member_or<Json>(job.resolved, "model", Json::object());
  Json seeds = Json::array(), prompts = Json::array(), negatives = Json::array(), subseeds = Json::array();
  const std::string varied = member_or<std::string>(request.native, "variation", "");
  const Variation variation = varied.empty() ? Variation{} : parse_variation(varied);
  for (const JobImage& image : job.images) {
    seeds.push_back(image.seed);
    prompts.push_back(prompt);
    negatives.push_back(negative);
    subseeds.push_back(varied.empty() ? 0 : variation.seed + subseeds.size());
  }
  const double guidance = member_or(job.resolved, "guidance", request.cfg_scale.value_or(1.0));
  return {{"prompt", prompt},
          {"all_prompts", prompts},
          {"negative_prompt", negative},
          {"all_negative_prompts", negatives},
          {"seed", count ? Json(job.images.front().seed) : Json(member_or<int64_t>(job.request, "seed", -1))},
          {"all_seeds", seeds},
          {"subseed", variation.seed},
          {"all_subseeds", subseeds},
          {"subseed_strength", variation.strength},
          {"width", count ? job.images.front().width : member_or(job.resolved, "width", 0)},
          {"height", count ? job.images.front().height : member_or(job.resolved, "height", 0)},
          {"sampler_name", sdapi_sampler_name(member_or<std::string>(job.resolved, "sampler", "euler"))},
          {"cfg_scale", guidance},
          {"steps", member_or(job.resolved, "steps", job.steps)},
          {"batch_size", request.batch_size},
          {"restore_faces", false},
          {"face_restoration_model", nullptr},
          {"sd_model_name", member_or<std::string>(model, "id", "")},
          {"sd_model_hash", request.model_hash},
          {"sd_vae_name", nullptr},
          {"sd_vae_hash", nullptr},
          {"seed_resize_from_w", -1},
          {"seed_resize_from_h", -1},
          {"denoising_strength", request.init_images.empty() ? Json() : Json(request.denoising_strength)},
          {"extra_generation_params", Json::object()},
          {"index_of_first_image", 0},
          {"infotexts", infotexts},
          {"styles", Json::array()},
          {"job_timestamp", time_stamp(job.started ? job.started : job.created)},
          {"clip_skip", 1},
          {"is_using_inpainting_conditioning", false},
          {"version", program_version()}};
}

Json sdapi_images_answer(const SdapiRequest& request, const Json& parameters, const Job& job, AssetStore& assets) {
  Json images = Json::array();
  std::vector<std::string> infotexts;
  for (const JobImage& image : job.images) {
    const std::string bytes = bytes_of_asset(assets, image.asset);
    infotexts.push_back(sdapi_infotext(std::as_bytes(std::span(bytes))));
    if (request.send_images) images.push_back(base64_of(bytes));
  }
  return {{"images", std::move(images)}, {"parameters", parameters}, {"info", sdapi_info(request, job, infotexts).dump()}};
}

Json sdapi_progress(const Job* job, bool is_loading, bool interrupted, const JobQueue::Preview* preview, int64_t now) {
  const bool idle = !job && !is_loading;
  // A client takes 0 for "idle", so a job that has begun has a little.
  constexpr double kBegun = 0.01;
  const double progress = !job ? 0 : std::clamp(job->progress, kBegun, 1.0);
  double eta = 0;
  if (job && job->started > 0 && progress > 0.05)
    eta = static_cast<double>(now - job->started) / 1000.0 * (1 - progress) / progress;
  const std::string name = job ? (job->client_ref.empty() ? job->id : job->client_ref) : "";
  const bool loading = is_loading || (job && job->phase == "load");
  return {{"progress", progress},
          {"eta_relative", eta},
          {"state",
           {{"skipped", false},
            {"interrupted", interrupted},
            {"stopping_generation", job && job->state == "cancelling"},
            {"job", loading ? "loading" : name},
            {"job_count", idle ? 0 : 1},
            {"job_timestamp", job ? time_stamp(job->created) : "0"},
            {"job_no", 0},
            {"sampling_step", job ? job->step : 0},
            {"sampling_steps", job ? job->steps : 0}}},
          {"current_image", preview ? Json(base64_of(preview->bytes)) : Json()},
          {"textinfo", job && !job->message.empty() ? Json(job->message) : Json()}};
}

Json sdapi_png_info(std::span<const std::byte> image, const ImageLimits& limits) {
  const ImageMetadata metadata = read_metadata(image, limits);
  Json items = Json::object(), parameters = Json::object();
  for (const auto& [key, value] : metadata.text) items[key] = value;
  if (!metadata.exif_comment.empty()) items["exif comment"] = metadata.exif_comment;
  const std::string* info = infotext_in(metadata);
  if (info) {
    const A1111Text text = parse_a1111(*info);
    parameters["Prompt"] = text.prompt;
    parameters["Negative prompt"] = text.negative;
    for (const auto& [key, value] : text.pairs) {
      const size_t x = value.find('x');
      if (key == "Size" && x != value.npos) {
        parameters["Size-1"] = value.substr(0, x);
        parameters["Size-2"] = value.substr(x + 1);
      } else {
        parameters[key] = value;
      }
    }
  }
  return {{"info", info ? *info : ""}, {"items", std::move(items)}, {"parameters", std::move(parameters)}};
}

Image sdapi_resized(const Image& image, int width, int height, int64_t mode) {
  if (image.width == width && image.height == height) return image;
  if (mode == 1) return cover(image, width, height);
  if (mode != 2) return resize(image, width, height);
  const double scale = std::min(static_cast<double>(width) / image.width, static_cast<double>(height) / image.height);
  const int w = std::clamp(static_cast<int>(std::lround(image.width * scale)), 1, width);
  const int h = std::clamp(static_cast<int>(std::lround(image.height * scale)), 1, height);
  return crop_extended(resize(image, w, h), {-(width - w) / 2, -(height - h) / 2, width, height});
}

Image sdapi_mask(const Image& image) {
  if (!has_transparency(image)) return luminance(image);
  Image mask(image.width, image.height, 1);
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x) *mask.at(x, y) = image.at(x, y)[image.channels - 1];
  return mask;
}

}  // namespace flux2
