#include "server/api/sdapi.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/context.h"
#include "app/upscalers.h"
#include "base/base64.h"
#include "image/format.h"
#include "image/metadata.h"
#include "image/read_image.h"
#include "image/resize.h"
#include "image/write_image.h"
#include "server/api/enlarging.h"
#include "server/api/sdapi_answer.h"
#include "server/api/sdapi_request.h"
#include "server/api/sdapi_state.h"
#include "server/api/waiting_client.h"
#include "server/jobs/request_images.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

constexpr uint64_t kSdapiImageBody = uint64_t{64} << 20;
constexpr size_t kMostSdapiReferences = 16;
constexpr int64_t kMostUpscaledPixels = 100'000'000;

using State = std::shared_ptr<SdapiState>;

Image image_in(const std::string& text, const ApiContext& api, const char* param) {
  const auto bytes = decoded_image(text, api.app, param);
  try {
    return read_image(bytes, {.limits = api.app.limits.image, .log = api.app.log});
  } catch (const Error& e) {
    throw HttpError(400, "invalid_image_file", fmt::format("{}: the image cannot be read: {}", param, e.what()), param);
  }
}

std::string stored_png(const Image& image, const char* kind, ApiContext& api) {
  return "asset:" + api.queue.assets().put(encode_png(image, {}, 1), {.kind = kind}).id;
}

// An image with a mask: canvas and mask in the size that was asked for.
void add_inpaint_images(SdapiRequest& request, ApiContext& api) {
  Json& native = request.native;
  const Image canvas = image_in(request.init_images.front(), api, "init_images");
  const Image mask = sdapi_mask(image_in(request.mask, api, "mask"));
  const int width = native.value("width", canvas.width), height = native.value("height", canvas.height);
  native["canvas"] = canvas.width == width && canvas.height == height
                         ? stored_image(request.init_images.front(), "reference", api.queue.assets(), api.app, "init_images")
                         : stored_png(sdapi_resized(canvas, width, height, request.resize_mode), "reference", api);
  // A mask of another size than its canvas is stretched over it first, as that program does.
  const Image fitted =
      mask.width == canvas.width && mask.height == canvas.height ? mask : resize(mask, canvas.width, canvas.height);
  native["mask"] = stored_png(sdapi_resized(fitted, width, height, request.resize_mode), "mask", api);
  native.erase("width");
  native.erase("height");
}

// Images in base64 as references of the native request, after those that are there.
void add_references(SdapiRequest& request, const std::vector<std::string>& images, ApiContext& api, const char* param) {
  Json& references = request.native["references"];
  if (references.is_null()) references = Json::array();
  for (const std::string& image : images) {
    if (references.size() == kMostSdapiReferences)
      throw HttpError(422, "invalid_value", fmt::format("{}: more than {} images", param, kMostSdapiReferences), param);
    references.push_back(stored_image(image, "reference", api.queue.assets(), api.app, param));
  }
}

// Puts the images of a request into its native form and returns the kind of the job.
std::string add_sdapi_images(SdapiRequest& request, ApiContext& api) {
  std::string kind = "generate";
  if (!request.init_images.empty() && !request.mask.empty()) {
    kind = "inpaint";
    add_inpaint_images(request, api);
    add_references(request, {request.init_images.begin() + 1, request.init_images.end()}, api, "init_images");
  } else if (!request.init_images.empty()) {
    kind = "edit";
    if (api.sdapi_img2img == ApiContext::Img2Img::Strength) {
      const Image canvas = image_in(request.init_images.front(), api, "init_images");
      const int width = request.native.value("width", canvas.width), height = request.native.value("height", canvas.height);
      request.native["references"] =
          Json::array({stored_png(sdapi_resized(canvas, width, height, request.resize_mode), "reference", api)});
      request.native["strength"] = request.denoising_strength;
      request.native["context"] = "none";
      add_references(request, {request.init_images.begin() + 1, request.init_images.end()}, api, "init_images");
    } else {
      add_references(request, request.init_images, api, "init_images");
    }
  }
  add_references(request, request.references, api, "extra_images");
  if (request.native["references"].empty()) request.native.erase("references");
  else if (kind == "generate") kind = "edit";
  return kind;
}

// The statuses that this family has: what is no fault of the client is 500.
HttpError in_sdapi_words(HttpError error) {
  if (error.status > 500 || error.status == 409) error.status = 500;
  return error;
}

void run_sdapi(ApiContext& api, const State& state, const Exchange& exchange, bool is_img2img) {
  const Json body = object_in_body(exchange.request(), api.app);
  SdapiRequest request = parse_sdapi_request(body, is_img2img);
  const std::string wanted = !request.model.empty() ? request.model : state->model();
  std::string model = api.default_model;
  if (!wanted.empty()) request.native["model"] = model = api.models.name_of(wanted);
  const ModelFiles files = api.models.find(model);
  apply_sdapi_model_rules(request, files, api.sdapi_distilled_step_cap);
  for (const InstalledModel& installed : api.models.main_models())
    if (installed.name == (model.empty() ? files.id : model)) request.model_hash = installed.hash;
  const std::string kind = add_sdapi_images(request, api);
  const Json parameters = sdapi_parameters(body, request);
  const Job job = submit_translated(
      api, {.members = request.native, .kind = kind, .client_ref = request.task_id, .caller = exchange.request().caller});
  state->begin(job.id);
  request.references.clear();
  request.mask.clear();
  request.init_images.resize(std::min<size_t>(request.init_images.size(), 1));
  if (!request.init_images.empty()) request.init_images.front().clear();  // only whether there was one matters now
  answer_when_finished(api, exchange, Family::A1111, job,
                       [state, request, parameters, &assets = api.queue.assets()](const Job& final) {
                         state->end(final.id);
                         if (final.state == "failed") throw in_sdapi_words(error_of_job(final));
                         return HttpResponse::json(sdapi_images_answer(request, parameters, final, assets));
                       });
}

std::vector<InstalledModel> models_loaded_first(ApiContext& api) {
  auto models = api.models.main_models();
  const std::string loaded = api.loaded_model();
  std::stable_partition(models.begin(), models.end(), [&](const InstalledModel& model) { return model.name == loaded; });
  return models;
}

// The model that requests without one use.
std::optional<InstalledModel> chosen_sdapi_model(ApiContext& api, const State& state) {
  const auto models = models_loaded_first(api);
  for (const std::string& name : {state->model(), api.default_model, api.loaded_model()})
    for (const InstalledModel& model : models)
      if (!name.empty() && model.name == name) return model;
  try {
    const std::string id = api.models.find(api.default_model).id;
    for (const InstalledModel& model : models)
      if (model.name == id) return model;
  } catch (const HttpError&) {  // no model is installed
  }
  return models.empty() ? std::nullopt : std::optional(models.front());
}

Json sdapi_options(ApiContext& api, const State& state) {
  const auto model = chosen_sdapi_model(api, state);
  Json options = {{"samples_format", "png"},          {"sd_vae", "Automatic"},        {"CLIP_stop_at_last_layers", 1},
                  {"show_progress_every_n_steps", 1}, {"live_previews_enable", true}, {"outdir_samples", "images"}};
  const Json set = state->options();
  for (const auto& [key, value] : set.items()) options[key] = value;
  options["sd_model_checkpoint"] = model ? Json(model->title()) : Json();
  options["sd_checkpoint_hash"] = model ? model->sha256.empty() ? model->hash : model->sha256 : "";
  return options;
}

HttpResponse set_sdapi_options(ApiContext& api, const State& state, const ServerRequest& request) {
  Json options = object_in_body(request, api.app);
  const auto wanted = sdapi_text(options, "sd_model_checkpoint");
  options.erase("sd_model_checkpoint");
  const std::string name = wanted && !wanted->empty() ? api.models.name_of(*wanted) : "";
  state->set_options(options);
  if (!name.empty()) {
    state->choose_model(name);
    if (api.load_model && api.loaded_model() != name) api.load_model(name);
  }
  return HttpResponse::json(nullptr);
}

Json sdapi_models(ApiContext& api) {
  Json list = Json::array();
  for (const InstalledModel& model : models_loaded_first(api))
    list.push_back({{"title", model.title()},
                    {"model_name", model.name},
                    {"hash", model.hash},
                    {"sha256", model.sha256.empty() ? Json() : Json(model.sha256)},
                    {"filename", model.file.string()},
                    {"config", nullptr}});
  return list;
}

Json sdapi_autoencoders(ApiContext& api) {
  Json list = Json::array();
  for (const InstalledModel& model : api.models.autoencoders())
    list.push_back({{"model_name", model.name}, {"filename", model.file.string()}});
  return list;
}

Json sdapi_adapters(ApiContext& api) {
  Json list = Json::array();
  for (const InstalledModel& model : api.models.adapters())
    list.push_back({{"name", model.name}, {"alias", model.name}, {"path", model.file.string()}, {"metadata", model.metadata}});
  return list;
}

Json sdapi_samplers() {
  return Json::array({{{"name", "Euler"}, {"aliases", {"euler", "k_euler"}}, {"options", Json::object()}},
                      {{"name", "Heun"}, {"aliases", {"heun", "k_heun"}}, {"options", {{"second_order", "True"}}}},
                      {{"name", "DPM++ 2M"}, {"aliases", {"dpmpp2m", "k_dpmpp_2m"}}, {"options", Json::object()}}});
}

Json sdapi_schedulers() {
  const auto one = [](const char* name, const char* label) -> Json {
    return {{"name", name}, {"label", label}, {"aliases", nullptr}, {"default_rho", -1}, {"need_inner_model", false}};
  };
  return Json::array({one("flux2", "FLUX.2"), one("linear", "Linear"), one("power", "Power")});
}

Json sdapi_upscalers(const ApiContext& api) {
  const auto one = [](const char* name) -> Json {
    return {{"name", name}, {"model_name", nullptr}, {"model_path", nullptr}, {"model_url", nullptr}, {"scale", 4}};
  };
  Json list = Json::array({one("None"), one("Lanczos")});
  for (const ModelRecord& r : registered_upscalers(api.app))
    list.push_back({{"name", r.name},
                    {"model_name", r.name},
                    {"model_path", r.path.string()},
                    {"model_url", nullptr},
                    {"scale", scale_of(r)}});
  return list;
}

HttpResponse sdapi_progress_of(ApiContext& api, const State& state, const ServerRequest& request) {
  const auto job = state->current();
  const bool skip_image = request.argument("skip_current_image").value_or("false") == "true";
  const auto preview = job && !skip_image ? api.queue.preview(job->id) : std::nullopt;
  return HttpResponse::json(
      sdapi_progress(job ? &*job : nullptr, api.is_loading(), state->interrupted(), preview ? &*preview : nullptr, now_ms()));
}

HttpResponse sdapi_memory(ApiContext& api) {
  const auto sizes = [](const MemorySize& memory) -> Json {
    return {{"free", memory.available}, {"used", memory.total - memory.available}, {"total", memory.total}};
  };
  Json cuda = {{"error", "unavailable"}};
  if (api.device_memory) cuda = {{"system", sizes(api.device_memory())}};
  return HttpResponse::json({{"ram", sizes(system_memory_size())}, {"cuda", std::move(cuda)}});
}

HttpResponse sdapi_png_info_of(ApiContext& api, const ServerRequest& request) {
  const Json body = object_in_body(request, api.app);
  const auto text = sdapi_text(body, "image");
  if (!text || text->empty()) throw HttpError(404, "not_found", "Image not found", "image");
  const auto bytes = decoded_image(*text, api.app, "image");
  try {
    return HttpResponse::json(sdapi_png_info(bytes, api.app.limits.image));
  } catch (const Error& e) {
    throw HttpError(400, "invalid_image_file", fmt::format("image: the image cannot be read: {}", e.what()), "image");
  }
}

// An image to enlarge, with the size that was asked for.
struct ToEnlarge {
  Image image;
  ImageMetadata metadata;  // stays, so that its settings can still be read
  int width = 0, height = 0;
  bool crop = false;
};

ToEnlarge to_enlarge(const std::string& text, const Json& body, const ApiContext& api) {
  ToEnlarge job{.image = image_in(text, api, "image"),
                .metadata = read_metadata(decoded_image(text, api.app, "image"), api.app.limits.image)};
  int64_t width = job.image.width, height = job.image.height;
  if (sdapi_integer(body, "resize_mode", 0, 1).value_or(0) == 0) {
    const double factor = sdapi_number(body, "upscaling_resize", 0.05, 16).value_or(2);
    width = static_cast<int64_t>(job.image.width * factor), height = static_cast<int64_t>(job.image.height * factor);
  } else {
    width = sdapi_integer(body, "upscaling_resize_w", 1, kMaxImageSide).value_or(512);
    height = sdapi_integer(body, "upscaling_resize_h", 1, kMaxImageSide).value_or(512);
    job.crop = sdapi_flag(body, "upscaling_crop", true);
  }
  width = std::max<int64_t>(width, 1), height = std::max<int64_t>(height, 1);
  if (width * height > kMostUpscaledPixels || std::max(width, height) > kMaxImageSide)
    throw HttpError(422, "invalid_value", fmt::format("the result would have {}x{} pixels, which is too large", width, height),
                    "upscaling_resize");
  job.width = static_cast<int>(width), job.height = static_cast<int>(height);
  return job;
}

// The image at its size, from the original or from what a network made of it.
std::string finished(const ToEnlarge& job, const Image& from) {
  const Image larger = job.crop ? cover(from, job.width, job.height) : resize(from, job.width, job.height);
  return base64_encode(encode_png(larger, job.metadata));
}

// The network that a request names; nothing for Lanczos.
std::optional<std::filesystem::path> network_of(const Json& body, const ApiContext& api) {
  const std::string name = sdapi_text(body, "upscaler_1").value_or("None");
  if (name == "None" || name == "Lanczos" || name.empty()) return std::nullopt;
  auto file = registered_upscaler(name, api);
  if (!file)
    throw HttpError(422, "invalid_value", "upscaler_1: unknown upscaler; use Lanczos, None or one of the list /upscalers",
                    "upscaler_1");
  return file;
}

// Enlarges all images of a request and answers with what `body_of` makes of them.
void answer_enlarged(ApiContext& api, const Exchange& exchange, const Json& body, const std::vector<std::string>& texts,
                     std::function<Json(std::vector<std::string>)> body_of) {
  const auto network = network_of(body, api);
  const auto jobs = std::make_shared<std::vector<ToEnlarge>>();
  for (const std::string& text : texts) {
    jobs->push_back(to_enlarge(text, body, api));
    const Image& image = jobs->back().image;
    if (network && int64_t{16} * image.width * image.height > kMostUpscaledPixels)
      throw HttpError(422, "invalid_value",
                      fmt::format("an image of {}x{} is too large for an upscaler", image.width, image.height), "image");
  }
  const auto answer = [jobs, network, body_of = std::move(body_of)](const EnlargeImage& enlarge) {
    std::vector<std::string> images;
    for (const ToEnlarge& job : *jobs) images.push_back(finished(job, network ? enlarge(*network, job.image) : job.image));
    return HttpResponse::json(body_of(std::move(images)));
  };
  if (!network) return exchange.respond(answer({}));
  answer_when_enlarged(api, exchange, Family::A1111, answer);
}

void upscale_one(ApiContext& api, const Exchange& exchange) {
  const Json body = object_in_body(exchange.request(), api.app);
  const auto text = sdapi_text(body, "image");
  if (!text || text->empty()) throw HttpError(404, "not_found", "Image not found", "image");
  answer_enlarged(api, exchange, body, {*text}, [](const std::vector<std::string>& images) -> Json {
    return {{"html_info", ""}, {"image", images.front()}};
  });
}

void upscale_several(ApiContext& api, const Exchange& exchange) {
  const Json body = object_in_body(exchange.request(), api.app);
  if (!body.contains("imageList") || !body["imageList"].is_array())
    throw HttpError(404, "not_found", "Image not found", "imageList");
  std::vector<std::string> texts;
  for (const Json& item : body["imageList"]) {
    const auto text = item.is_object() ? sdapi_text(item, "data") : std::nullopt;
    if (!text) throw HttpError(422, "invalid_value", "imageList: every item needs data", "imageList");
    texts.push_back(*text);
  }
  answer_enlarged(api, exchange, body, texts, [](const std::vector<std::string>& images) -> Json {
    return {{"html_info", ""}, {"images", images}};
  });
}

// Adds routes below /sdapi/v1.
class SdapiRoutes {
 public:
  SdapiRoutes(Router& router, uint64_t body_limit) : router_(router), body_limit_(body_limit) {}

  void get(const char* path, const char* summary, std::function<HttpResponse(const ServerRequest&)> answer,
           Scope scope = Scope::Generate) const {
    add("GET", path, summary, answering(std::move(answer)), scope);
  }
  void post(const char* path, const char* summary, std::function<HttpResponse(const ServerRequest&)> answer,
            Scope scope = Scope::Generate) const {
    add("POST", path, summary, answering(std::move(answer)), scope);
  }
  void add(const char* method, const char* path, const char* summary, Handler handler, Scope scope = Scope::Generate) const {
    router_.add({.method = method,
                 .pattern = std::string("/sdapi/v1") + path,
                 .handler = std::move(handler),
                 .scope = scope,
                 .body_limit = body_limit_,
                 .summary = summary});
  }

 private:
  Router& router_;
  uint64_t body_limit_;
};

std::function<HttpResponse(const ServerRequest&)> always(Json value) {
  return [value = std::move(value)](const ServerRequest&) { return HttpResponse::json(value); };
}

void add_lists(const SdapiRoutes& routes, ApiContext& api) {
  routes.get("/samplers", "The samplers", always(sdapi_samplers()));
  routes.get("/schedulers", "The schedules", always(sdapi_schedulers()));
  routes.get("/upscalers", "The upscalers", [&api](const ServerRequest&) { return HttpResponse::json(sdapi_upscalers(api)); });
  routes.get("/sd-models", "The installed models",
             [&api](const ServerRequest&) { return HttpResponse::json(sdapi_models(api)); });
  for (const char* path : {"/sd-vae", "/sd-modules"})
    routes.get(path, "The installed autoencoders",
               [&api](const ServerRequest&) { return HttpResponse::json(sdapi_autoencoders(api)); });
  routes.get("/loras", "The installed adapters",
             [&api](const ServerRequest&) { return HttpResponse::json(sdapi_adapters(api)); });
  for (const char* path : {"/latent-upscale-modes", "/hypernetworks", "/prompt-styles", "/face-restorers", "/realesrgan-models",
                           "/script-info", "/extensions"})
    routes.get(path, "Always empty", always(Json::array()));
  routes.get("/embeddings", "Always empty", always({{"loaded", Json::object()}, {"skipped", Json::object()}}));
  routes.get("/scripts", "Always empty", always({{"txt2img", Json::array()}, {"img2img", Json::array()}}));
  routes.get("/cmd-flags", "Always empty", always(Json::object()));
}

void add_control(const SdapiRoutes& routes, ApiContext& api, const State& state) {
  routes.get("/options", "The options and the chosen model",
             [&api, state](const ServerRequest&) { return HttpResponse::json(sdapi_options(api, state)); });
  routes.post("/options", "Choose a model and set options",
              [&api, state](const ServerRequest& request) { return set_sdapi_options(api, state, request); });
  routes.get("/progress", "What the current job does",
             [&api, state](const ServerRequest& request) { return sdapi_progress_of(api, state, request); });
  routes.post("/interrupt", "Stop the current job", [state](const ServerRequest&) {
    state->interrupt();
    return HttpResponse::json(Json::object());
  });
  routes.post("/skip", "End the current batch of the job and go on with the next", [state](const ServerRequest&) {
    state->skip();
    return HttpResponse::json(Json::object());
  });
  routes.get("/memory", "Memory of the machine and the GPU", [&api](const ServerRequest&) { return sdapi_memory(api); });
  for (const char* path : {"/refresh-checkpoints", "/refresh-loras", "/refresh-vae"})
    routes.post(path, "Look for models again", [&api](const ServerRequest&) {
      api.models.refresh();
      return HttpResponse::json(nullptr);
    });
  routes.post(
      "/unload-checkpoint", "Free the memory of the model",
      [&api](const ServerRequest&) {
        if (api.unload_model) api.unload_model();
        return HttpResponse::json(Json::object());
      },
      Scope::Manage);
  routes.post(
      "/reload-checkpoint", "Load the model",
      [&api, state](const ServerRequest&) {
        if (api.load_model) api.load_model(state->model().empty() ? api.default_model : state->model());
        return HttpResponse::json(Json::object());
      },
      Scope::Manage);
}

}  // namespace

void add_sdapi_routes(Router& router, ApiContext& api) {
  const auto state = std::make_shared<SdapiState>(api.queue);
  const SdapiRoutes routes(router, 1 << 20), with_images(router, kSdapiImageBody);
  with_images.add("POST", "/txt2img", "Generate images from a prompt",
                  [&api, state](const Exchange& exchange) { run_sdapi(api, state, exchange, false); });
  with_images.add("POST", "/img2img", "Edit an image, or the masked part of one",
                  [&api, state](const Exchange& exchange) { run_sdapi(api, state, exchange, true); });
  with_images.post("/png-info", "The settings inside an image",
                   [&api](const ServerRequest& request) { return sdapi_png_info_of(api, request); });
  with_images.add("POST", "/extra-single-image", "Enlarge an image",
                  [&api](const Exchange& exchange) { upscale_one(api, exchange); });
  with_images.add("POST", "/extra-batch-images", "Enlarge several images",
                  [&api](const Exchange& exchange) { upscale_several(api, exchange); });
  add_lists(routes, api);
  add_control(routes, api, state);
}

}  // namespace flux2
