#include "server/api/sdapi_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <random>

#include "app/adapters.h"
#include "base/error.h"
#include "base/text.h"
#include "image/format.h"
#include "pipeline/noise.h"
#include "pipeline/picture_size.h"
#include "record/a1111_text.h"
#include "server/http/errors.h"

namespace flux2 {

namespace {

constexpr int64_t kAnySdapiSide = 1 << 20, kMostSteps = 1000, kMostSdapiImages = 1024;

[[noreturn]] void invalid(const char* name, const std::string& why) {
  throw HttpError(422, "invalid_value", fmt::format("{}: {}", name, why), name);
}

const Json* sdapi_member(const Json& body, const char* name) {
  const auto found = body.find(name);
  return found == body.end() || found->is_null() ? nullptr : &*found;
}

// A number in JSON, or in a text.
std::optional<double> lenient_number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  if (value.is_string())
    if (const auto parsed = try_parse_json(value.get<std::string>()); parsed && parsed->is_number()) return parsed->get<double>();
  return std::nullopt;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::vector<std::string> images_in(const Json& body, const char* name) {
  std::vector<std::string> images;
  const Json* list = sdapi_member(body, name);
  if (!list) return images;
  if (!list->is_array()) invalid(name, "must be a list of images in base64");
  for (const Json& image : *list) {
    if (!image.is_string()) invalid(name, "must be a list of images in base64");
    images.push_back(image.get<std::string>());
  }
  return images;
}

// {"path" or "name", "multiplier" or "weight"}; a path counts as the name of its file.
Json adapter_of(const Json& item) {
  if (!item.is_object()) invalid("lora", "must be a list of objects");
  std::string name = sdapi_text(item, "name").value_or(sdapi_text(item, "path").value_or(""));
  name = name.substr(name.find_last_of("/\\") + 1);
  if (name.ends_with(".safetensors")) name.erase(name.size() - std::string_view(".safetensors").size());
  if (name.empty()) invalid("lora", "an adapter has no name");
  const double weight = sdapi_number(item, "weight", -100, 100).value_or(sdapi_number(item, "multiplier", -100, 100).value_or(1));
  return {{"name", name}, {"weight", weight}};
}

// "name:weight" of a tag in the prompt.
Json adapter_of_tag(const std::string& text) {
  const size_t colon = text.find(':');
  if (colon == text.npos) return {{"name", text}, {"weight", 1.0}};
  std::string weight = text.substr(colon + 1);
  weight = weight.substr(0, weight.find(':'));
  const auto parsed = try_parse_json(weight);
  return {{"name", text.substr(0, colon)}, {"weight", parsed && parsed->is_number() ? parsed->get<double>() : 1.0}};
}

void read_infotext(const Json& body, SdapiRequest& request) {
  const auto text = sdapi_text(body, "infotext");
  if (!text || text->empty()) return;
  const RequestSpec spec = record_from_a1111(parse_a1111(*text)).request;
  Json& native = request.native;
  if (spec.prompt) native["prompt"] = *spec.prompt;
  if (spec.negative && !spec.negative->empty()) native["negative"] = *spec.negative;
  if (spec.seed) native["seed"] = *spec.seed;
  if (spec.steps) native["steps"] = *spec.steps;
  if (spec.sampler) native["sampler"] = *spec.sampler;
  if (spec.width && spec.height) {
    native["width"] = *spec.width, native["height"] = *spec.height;
    request.has_size = true;
  }
  if (spec.cfg) request.cfg_scale = spec.cfg;
  if (spec.guidance) request.distilled_cfg_scale = spec.guidance;
}

void read_prompt(const Json& body, Json& native) {
  if (const auto prompt = sdapi_text(body, "prompt")) native["prompt"] = *prompt;
  if (!native.contains("prompt")) native["prompt"] = "";
  if (const auto negative = sdapi_text(body, "negative_prompt"); negative && !negative->empty()) native["negative"] = *negative;
  Json adapters = Json::array();
  std::vector<std::string> tags;
  native["prompt"] = without_lora_tags(native["prompt"].get<std::string>(), tags);
  for (const std::string& tag : tags) adapters.push_back(adapter_of_tag(tag));
  if (const Json* list = sdapi_member(body, "lora"); list && list->is_array())
    for (const Json& item : *list) adapters.push_back(adapter_of(item));
  if (!adapters.empty()) native["loras"] = std::move(adapters);
}

void read_sampling(const Json& body, SdapiRequest& request) {
  Json& native = request.native;
  if (const auto seed = sdapi_number(body, "seed", -1, 9.3e18)) {
    const Json* given = sdapi_member(body, "seed");
    native["seed"] = given->is_number_integer() ? given->get<int64_t>() : static_cast<int64_t>(std::min(*seed, 9.2e18));
  }
  if (const auto strength = sdapi_number(body, "subseed_strength", 0, 1); strength.value_or(0) > 0) {
    const double other = sdapi_number(body, "subseed", -1, 9.2e18).value_or(-1);
    native["variation"] = Variation{other < 0 ? std::random_device{}() : static_cast<uint64_t>(other), *strength}.text();
  }
  if (sdapi_flag(body, "tiling", false)) native["tile"] = "both";
  if (const auto steps = sdapi_integer(body, "steps", 1, kMostSteps)) native["steps"] = *steps;
  if (const auto scale = sdapi_number(body, "cfg_scale", 0, 1000)) request.cfg_scale = scale;
  if (const auto scale = sdapi_number(body, "distilled_cfg_scale", 0, 1000)) request.distilled_cfg_scale = scale;
  const auto sampler = sdapi_text(body, "sampler_name");
  const auto index = sdapi_text(body, "sampler_index");
  if (sampler || index) native["sampler"] = sampler_of_sdapi(sampler ? *sampler : *index);
  if (const auto scheduler = sdapi_text(body, "scheduler"))
    if (const std::string schedule = schedule_of_sdapi(*scheduler); !schedule.empty()) native["schedule"] = schedule;
}

void read_sides(const Json& body, SdapiRequest& request) {
  const auto width = sdapi_integer(body, "width", 1, kAnySdapiSide), height = sdapi_integer(body, "height", 1, kAnySdapiSide);
  if (!width && !height) return;
  const int64_t other = width ? *width : *height;
  try {
    const PictureSize size =
        valid_picture_size({static_cast<int>(width.value_or(other)), static_cast<int>(height.value_or(other))}, false, Log());
    request.native["width"] = size.width;
    request.native["height"] = size.height;
    request.has_size = true;
  } catch (const Error& e) {
    invalid("width", e.what());
  }
}

void read_overrides(const Json& body, SdapiRequest& request) {
  const Json* overrides = sdapi_member(body, "override_settings");
  if (!overrides || !overrides->is_object()) return;
  request.model = sdapi_text(*overrides, "sd_model_checkpoint").value_or("");
  if (const auto format = sdapi_text(*overrides, "samples_format")) {
    try {
      format_from_name(*format);
    } catch (const Error& e) {
      invalid("samples_format", e.what());
    }
    request.native["output_format"] = lower_case(*format);
  }
  if (const auto vae = sdapi_text(*overrides, "sd_vae"); vae && !vae->empty() && *vae != "Automatic" && *vae != "None")
    invalid("sd_vae", "an autoencoder cannot be chosen for one request; use Automatic");
}

// The second pass. "Latent…" enlarges latents; every other upscaler is the one of hires.
void read_hires(const Json& body, Json& native) {
  if (!sdapi_flag(body, "enable_hr", false)) return;
  for (const char* side : {"hr_resize_x", "hr_resize_y"})
    if (sdapi_integer(body, side, 0, kAnySdapiSide).value_or(0) > 0) invalid(side, "is not supported; use hr_scale");
  if (const auto steps = sdapi_integer(body, "hr_second_pass_steps", 0, kMostSteps); steps.value_or(0) > 0)
    if (!native.contains("steps") || native["steps"] != *steps)
      invalid("hr_second_pass_steps", "is not supported; both passes have the same schedule");
  native["hires"] = sdapi_number(body, "hr_scale", 1, 4).value_or(2);
  native["hires_strength"] = sdapi_number(body, "denoising_strength", 0, 1).value_or(0.3);
  if (sdapi_text(body, "hr_upscaler").value_or("").starts_with("Latent")) native["hires_method"] = "latents";
}

void read_img2img(const Json& body, SdapiRequest& request) {
  request.init_images = images_in(body, "init_images");
  if (request.init_images.empty()) throw HttpError(404, "not_found", "Init image not found", "init_images");
  request.mask = sdapi_text(body, "mask").value_or("");
  request.resize_mode = sdapi_integer(body, "resize_mode", 0, 3).value_or(0);
  request.denoising_strength = sdapi_number(body, "denoising_strength", 0, 1).value_or(0.75);
  request.include_init_images = sdapi_flag(body, "include_init_images", false);
  if (request.mask.empty()) return;
  Json& native = request.native;
  std::optional<int64_t> blur = sdapi_integer(body, "mask_blur", 0, 512);
  for (const char* name : {"mask_blur_x", "mask_blur_y"})
    if (const auto one = sdapi_integer(body, name, 0, 512)) blur = std::max(blur.value_or(0), *one);
  if (blur) native["feather"] = *blur;
  if (sdapi_integer(body, "inpainting_mask_invert", 0, 1).value_or(0) == 1) native["mask_invert"] = true;
  if (sdapi_member(body, "inpaint_full_res"))
    native["crop"] = sdapi_flag(body, "inpaint_full_res", true)
                         ? std::to_string(sdapi_integer(body, "inpaint_full_res_padding", 0, 4096).value_or(32))
                         : "off";
  // Only "original" keeps what is under the mask; the others start without it.
  const int64_t fill = sdapi_integer(body, "inpainting_fill", 0, 3).value_or(1);
  native["strength"] = fill == 1 ? request.denoising_strength : 1.0;
}

}  // namespace

std::optional<double> sdapi_number(const Json& body, const char* name, double low, double high) {
  const Json* value = sdapi_member(body, name);
  if (!value) return std::nullopt;
  const auto number = lenient_number(*value);
  if (!number || !std::isfinite(*number)) invalid(name, "must be a number");
  if (*number < low || *number > high) invalid(name, fmt::format("must be from {} to {}", low, high));
  return number;
}

std::optional<int64_t> sdapi_integer(const Json& body, const char* name, int64_t low, int64_t high) {
  const auto number = sdapi_number(body, name, static_cast<double>(low), static_cast<double>(high));
  if (!number) return std::nullopt;
  if (*number != std::floor(*number)) invalid(name, "must be a whole number");
  return static_cast<int64_t>(*number);
}

std::optional<std::string> sdapi_text(const Json& body, const char* name) {
  const Json* value = sdapi_member(body, name);
  if (!value) return std::nullopt;
  if (!value->is_string()) invalid(name, "must be a string");
  return value->get<std::string>();
}

bool sdapi_flag(const Json& body, const char* name, bool fallback) {
  const Json* value = sdapi_member(body, name);
  if (!value) return fallback;
  if (value->is_string()) {
    const std::string text = lower_case(value->get<std::string>());
    if (text == "true" || text == "1") return true;
    if (text == "false" || text == "0") return false;
  }
  const auto number = lenient_number(*value);
  if (!number) invalid(name, "must be true or false");
  return *number != 0;
}

std::string sampler_of_sdapi(std::string_view name) {
  const std::string text = lower_case(name);
  const auto has = [&](std::string_view part) { return text.find(part) != text.npos; };
  if ((has("dpm++ 2m") || has("dpmpp_2m") || has("dpmpp2m")) && !has("sde")) return "dpmpp2m";
  return has("heun") ? "heun" : "euler";
}

std::string sdapi_sampler_name(std::string_view sampler) {
  return sampler == "dpmpp2m" ? "DPM++ 2M" : sampler == "heun" ? "Heun" : "Euler";
}

std::string schedule_of_sdapi(std::string_view name) {
  const std::string text = lower_case(name);
  if (text == "flux2" || text == "flux.2") return "model";
  return text == "linear" || text == "power" ? text : "";
}

SdapiRequest parse_sdapi_request(const Json& body, bool is_img2img) {
  SdapiRequest request;
  read_infotext(body, request);
  read_prompt(body, request.native);
  read_sampling(body, request);
  read_hires(body, request.native);
  read_sides(body, request);
  read_overrides(body, request);
  request.batch_size = sdapi_integer(body, "batch_size", 1, kMostSdapiImages).value_or(1);
  request.n_iter = sdapi_integer(body, "n_iter", 1, kMostSdapiImages).value_or(1);
  if (request.batch_size * request.n_iter > kMostSdapiImages)
    invalid("n_iter", fmt::format("batch_size times n_iter may be at most {}", kMostSdapiImages));
  request.native["count"] = request.batch_size * request.n_iter;
  if (request.n_iter > 1) request.native["rounds"] = request.n_iter;  // batches one after the other, of which one can be skipped
  request.send_images = sdapi_flag(body, "send_images", true);
  request.native["save"] = sdapi_flag(body, "save_images", false);
  request.task_id = sdapi_text(body, "force_task_id").value_or("");
  request.references = images_in(body, "extra_images");
  if (is_img2img) read_img2img(body, request);
  return request;
}

void apply_sdapi_model_rules(SdapiRequest& request, const ModelFiles& model, int64_t distilled_step_cap) {
  Json& native = request.native;
  if (model.distilled && native.contains("steps")) native["steps"] = std::min(native["steps"].get<int64_t>(), distilled_step_cap);
  switch (model.defaults.guidance_kind) {
    case ModelDefaults::None: break;
    case ModelDefaults::Embedded:
      if (request.distilled_cfg_scale) native["guidance"] = std::min(*request.distilled_cfg_scale, 100.0);
      break;
    case ModelDefaults::TrueCfg:
      if (request.cfg_scale) native["guidance"] = std::min(*request.cfg_scale, 100.0);
      break;
  }
}

Json sdapi_parameters(const Json& body, const SdapiRequest& request) {
  Json parameters = body;
  if (!request.include_init_images)
    for (const char* name : {"init_images", "mask", "extra_images"})
      if (parameters.contains(name)) parameters[name] = nullptr;
  return parameters;
}

}  // namespace flux2
