#include "server/api/openai.h"

#include <fmt/format.h>

#include <algorithm>

#include "server/api/openai_answer.h"
#include "server/api/openai_request.h"
#include "server/api/openai_stream.h"
#include "server/api/waiting_client.h"
#include "server/jobs/request_images.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr uint64_t kOpenAiJsonBody = 64 << 20;                 // JSON with images
constexpr uint64_t kOpenAiFormBody = uint64_t{16 * 50} << 20;  // 16 images of 50 MiB
constexpr size_t kMostReferences = 16;
constexpr int64_t kFilesKept = 60 * 60 * 1000;  // ms
constexpr const char* kVariationPrompt = "Make a variation of this image.";

Json openai_model_json(const InstalledModel& model, bool loaded) {
  return {{"id", model.name},    {"object", "model"}, {"created", model.installed},
          {"owned_by", "local"}, {"loaded", loaded},  {"capabilities", {"generate", "edit", "inpaint"}}};
}

HttpResponse openai_models(ApiContext& api) {
  std::vector<InstalledModel> models = api.models.main_models();
  const std::string loaded = api.loaded_model();
  std::stable_partition(models.begin(), models.end(), [&](const InstalledModel& model) { return model.name == loaded; });
  Json data = Json::array();
  for (const InstalledModel& model : models) data.push_back(openai_model_json(model, model.name == loaded));
  return HttpResponse::json({{"object", "list"}, {"data", std::move(data)}});
}

HttpResponse openai_model(ApiContext& api, const std::string& id) {
  for (const InstalledModel& model : api.models.main_models())
    if (model.name == id) return HttpResponse::json(openai_model_json(model, model.name == api.loaded_model()));
  throw HttpError(404, "model_not_found", fmt::format("The model '{}' does not exist.", id), "model");
}

// Decides which model runs, and applies its rules.
void choose_openai_model(ApiContext& api, OpenAiRequest& request) {
  request.native.erase("model");
  std::string name = request.model;
  if (api.alias_openai_models && is_openai_model_name(name)) name.clear();
  if (!name.empty()) request.native["model"] = name = api.models.name_of(name);
  if (name.empty()) {
    const std::string loaded = api.loaded_model();
    const auto models = api.models.main_models();
    const bool known = std::any_of(models.begin(), models.end(), [&](const InstalledModel& m) { return m.name == loaded; });
    name = known ? loaded : api.default_model;
    if (!name.empty()) request.native["model"] = name;
  }
  apply_model_rules(request, api.models.find(name));
}

// Native names of members in the words of this family.
HttpError in_openai_words(HttpError error) {
  if (error.code == "invalid_request") error.code = "invalid_value";
  const std::string& param = error.param;
  if (param.starts_with("references") || param == "canvas") error.param = "image";
  else if (param == "count") error.param = "n";
  else if (param == "width" || param == "height") error.param = "size";
  else if (param == "output_quality") error.param = "output_compression";
  return error;
}

std::string openai_file_prefix(const ApiContext& api, const ServerRequest& request) {
  const std::string host(request.header("host"));
  const std::string base = host.empty() ? api.base_url : (api.is_tls ? "https://" : "http://") + host;
  return base + "/v1/images/files/";
}

Job submit_openai(ApiContext& api, const OpenAiRequest& request, const std::string& kind, const Caller& caller) {
  try {
    return submit_translated(api, {.members = request.native, .kind = kind, .client_ref = request.user, .caller = caller});
  } catch (const HttpError& e) {
    throw in_openai_words(e);
  }
}

void run_openai(ApiContext& api, const std::shared_ptr<StreamPulse>& pulse, const Exchange& exchange,
                const OpenAiRequest& request, const std::string& kind) {
  OpenAiAnswer answer{.output_format = request.output_format,
                      .quality = request.quality,
                      .as_url = request.as_url,
                      .file_prefix = openai_file_prefix(api, exchange.request()),
                      .event = kind == "generate" ? "image_generation" : "image_edit"};
  if (!request.stream) {
    OpenAiRequest quiet = request;  // nobody sees previews
    if (!quiet.native.contains("preview")) quiet.native["preview"] = "off";
    const Job job = submit_openai(api, quiet, kind, exchange.request().caller);
    answer_when_finished(api, exchange, Family::OpenAi, job, [answer, &assets = api.queue.assets()](const Job& final) {
      if (final.state != "completed") throw error_of_job(final);
      return HttpResponse::json(openai_images_answer(answer, final, assets));
    });
    return;
  }
  const auto stream = std::make_shared<OpenAiStream>(api, answer, request);
  stream->listen();
  const Job job = submit_openai(api, request, kind, exchange.request().caller);
  const EventStream events = exchange.stream({{"cache-control", "no-store"}});
  pulse->add(events, stream);
  stream->begin(job, events);
}

void generate_openai(ApiContext& api, const std::shared_ptr<StreamPulse>& pulse, const Exchange& exchange) {
  if (exchange.request().is_multipart) throw HttpError(400, "invalid_content_type", "Send generations as application/json.");
  OpenAiRequest request = parse_openai_request(object_in_body(exchange.request(), api.app));
  choose_openai_model(api, request);
  run_openai(api, pulse, exchange, request, "generate");
}

// The images of a request as "asset:ID".
struct EditImages {
  std::vector<std::string> images;
  std::optional<std::string> mask;
};

EditImages images_of_form(const ServerRequest& request, AssetStore& assets) {
  EditImages found;
  for (const FormPart& part : request.parts) {
    if (!is_openai_image_part(part.name) && part.name != "mask") continue;
    if (part.bytes == 0 && part.data.empty()) continue;  // a client that had none
    if (part.name == "mask") {
      if (found.mask) throw HttpError(400, "invalid_value", "Send only one mask.", "mask");
      found.mask = stored_part(part, "mask", assets, "mask");
      continue;
    }
    if (found.images.size() == kMostReferences)
      throw HttpError(400, "invalid_value", fmt::format("Send at most {} images.", kMostReferences), "image");
    try {
      found.images.push_back(stored_part(part, "reference", assets, fmt::format("image {}", found.images.size() + 1)));
    } catch (HttpError& e) {
      e.param = "image";
      throw;
    }
  }
  return found;
}

EditImages images_of_json(const Json& body, ApiContext& api) {
  EditImages found;
  const auto images = openai_images(body);
  if (images.size() > kMostReferences)
    throw HttpError(400, "invalid_value", fmt::format("Send at most {} images.", kMostReferences), "image");
  for (const std::string& image : images) {
    try {
      found.images.push_back(
          stored_image(image, "reference", api.queue.assets(), api.app, fmt::format("image {}", found.images.size() + 1)));
    } catch (HttpError& e) {
      e.param = "image";
      throw;
    }
  }
  if (const auto mask = openai_mask(body)) found.mask = stored_image(*mask, "mask", api.queue.assets(), api.app, "mask");
  return found;
}

// Puts the images into the native request and returns its kind.
std::string add_images(OpenAiRequest& request, const EditImages& given, AssetStore& assets) {
  if (given.images.empty()) throw HttpError(400, "missing_required_parameter", "Missing required parameter: 'image'.", "image");
  if (const std::string pixels = reference_pixels(request, given.images.size()); !pixels.empty())
    request.native["ref_pixels"] = pixels;
  if (!given.mask) {
    request.native["references"] = given.images;
    return "edit";
  }
  const Asset canvas = asset_of(given.images.front(), assets), mask = asset_of(*given.mask, assets);
  if (canvas.width != mask.width || canvas.height != mask.height)
    throw HttpError(400, "invalid_mask_size",
                    fmt::format("The mask has {}x{} pixels and the image {}x{}; they must have the same size.", mask.width,
                                mask.height, canvas.width, canvas.height),
                    "mask");
  for (const char* member : {"width", "height", "size", "match"}) request.native.erase(member);  // the canvas decides
  request.native["canvas"] = given.images.front();
  request.native["mask"] = *given.mask;
  if (given.images.size() > 1) request.native["references"] = std::vector(given.images.begin() + 1, given.images.end());
  return "inpaint";
}

void edit_openai(ApiContext& api, const std::shared_ptr<StreamPulse>& pulse, const Exchange& exchange) {
  const ServerRequest& http = exchange.request();
  if (!http.is_multipart && http.header("content-type").find("json") == std::string_view::npos)
    throw HttpError(400, "invalid_content_type", "Send edits as multipart/form-data or application/json.");
  const Json body = http.is_multipart ? openai_body_of_form(http.parts) : object_in_body(http, api.app);
  OpenAiRequest request = parse_openai_request(body);
  choose_openai_model(api, request);
  const EditImages images = http.is_multipart ? images_of_form(http, api.queue.assets()) : images_of_json(body, api);
  const std::string kind = add_images(request, images, api.queue.assets());
  run_openai(api, pulse, exchange, request, kind);
}

void vary_openai(ApiContext& api, const std::shared_ptr<StreamPulse>& pulse, const Exchange& exchange) {
  const ServerRequest& http = exchange.request();
  if (!http.is_multipart) throw HttpError(400, "invalid_content_type", "Send variations as multipart/form-data.");
  Json body = openai_body_of_form(http.parts);
  body["prompt"] = kVariationPrompt;
  body.erase("stream");
  body.erase("partial_images");
  OpenAiRequest request = parse_openai_request(body);
  choose_openai_model(api, request);
  EditImages images = images_of_form(http, api.queue.assets());
  images.mask.reset();
  const std::string kind = add_images(request, images, api.queue.assets());
  run_openai(api, pulse, exchange, request, kind);
}

HttpResponse openai_file(ApiContext& api, const std::string& name) {
  const HttpError gone(404, "unknown_url", "The file does not exist or has expired.");
  const auto file = openai_file_named(name);
  if (!file) throw gone;
  const auto job = api.queue.store().get(file->job);
  if (!job || !job->is_final() || now_ms() - job->finished > kFilesKept) throw gone;
  for (const JobImage& image : job->images)
    if (image.index == file->index) {
      const auto asset = api.queue.assets().get(image.asset);
      if (!asset || asset->missing) throw gone;
      HttpResponse response;
      response.content_type = asset->mime;
      response.file = api.queue.assets().path_of(*asset);
      response.etag = asset->sha256;
      return response;
    }
  throw gone;
}

}  // namespace

void add_openai_routes(Router& router, ApiContext& api) {
  const auto pulse = std::make_shared<StreamPulse>();
  router.add({.method = "GET",
              .pattern = "/v1/models",
              .handler = answering([&api](const ServerRequest&) { return openai_models(api); }),
              .summary = "The models that are installed"});
  router.add({.method = "GET",
              .pattern = "/v1/models/{id}",
              .handler = answering([&api](const ServerRequest& request) { return openai_model(api, request.parameter("id")); }),
              .summary = "One model"});
  router.add({.method = "POST",
              .pattern = "/v1/images/generations",
              .handler = [&api, pulse](const Exchange& exchange) { generate_openai(api, pulse, exchange); },
              .body_limit = kOpenAiJsonBody,
              .summary = "Generate images from a prompt"});
  router.add({.method = "POST",
              .pattern = "/v1/images/edits",
              .handler = [&api, pulse](const Exchange& exchange) { edit_openai(api, pulse, exchange); },
              .body_limit = kOpenAiJsonBody,
              .form_limit = kOpenAiFormBody,
              .summary = "Edit images, or the masked part of one"});
  router.add({.method = "POST",
              .pattern = "/v1/images/variations",
              .handler = [&api, pulse](const Exchange& exchange) { vary_openai(api, pulse, exchange); },
              .form_limit = kOpenAiFormBody,
              .summary = "Make variations of an image"});
  // The name contains the random id of the job, as a signed address does: who has it may read the file without a key.
  router.add({.method = "GET",
              .pattern = "/v1/images/files/{name}",
              .handler = answering([&api](const ServerRequest& request) { return openai_file(api, request.parameter("name")); }),
              .scope = Scope::None,
              .summary = "An image of an answer with response_format url, for 60 minutes"});
}

}  // namespace flux2
