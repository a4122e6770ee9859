#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "hub/model_files.h"
#include "server/api/api_context.h"

namespace flux2 {

// A request of the A1111 API, translated. Its errors are HttpError 400, 404 or 422.
struct SdapiRequest {
  Json native = Json::object();  // members of a native job request, without images
  std::string model;             // of override_settings: a name, title or hash; empty: none
  std::string model_hash;        // ten digits, for the answer
  std::optional<double> cfg_scale, distilled_cfg_scale;
  bool has_size = false;  // width and height were given
  bool send_images = true;
  int64_t batch_size = 1, n_iter = 1;
  std::string task_id;
  std::vector<std::string> references;  // extra_images: base64

  // img2img
  std::vector<std::string> init_images;  // base64; the first is the canvas
  std::string mask;
  int64_t resize_mode = 0;  // 0 stretch, 1 crop, 2 fill
  double denoising_strength = 0.75;
  bool include_init_images = false;
};

SdapiRequest parse_sdapi_request(const Json& body, bool is_img2img);

// What depends on the model: which guidance counts, and how many steps a distilled model makes at most.
void apply_sdapi_model_rules(SdapiRequest& request, const ModelFiles& model, int64_t distilled_step_cap);

// The request as the answer repeats it: images are left out unless the client wants them back.
Json sdapi_parameters(const Json& body, const SdapiRequest& request);

// Our sampler for a name of that program: names that we do not have mean euler.
std::string sampler_of_sdapi(std::string_view name);
std::string sdapi_sampler_name(std::string_view sampler);  // "euler" → "Euler"
// Our schedule; empty for names that we do not have: the model's own.
std::string schedule_of_sdapi(std::string_view name);

// Whole numbers, numbers and booleans of clients that send them as texts, as pydantic reads them. Throws HttpError 422.
std::optional<int64_t> sdapi_integer(const Json& body, const char* name, int64_t low, int64_t high);
std::optional<double> sdapi_number(const Json& body, const char* name, double low, double high);
std::optional<std::string> sdapi_text(const Json& body, const char* name);
bool sdapi_flag(const Json& body, const char* name, bool fallback);

}  // namespace flux2
