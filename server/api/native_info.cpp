#include <fmt/format.h>

#include <algorithm>

#include "app/adapters.h"
#include "app/extra_passes.h"
#include "app/presets.h"
#include "app/prompt_rewriting.h"
#include "app/registry_access.h"
#include "app/upscalers.h"
#include "engine/forecast.h"
#include "image/format.h"
#include "record/generation_record.h"
#include "server/api/native.h"
#include "server/api/service_mask.h"
#include "server/http/errors.h"
#include "server/jobs/job_kinds.h"
#include "server/jobs/job_request.h"
#include "server/jobs/job_settings.h"
#include "server/jobs/planner.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

Json names_json(const std::vector<ImageFormat>& formats) {
  Json names = Json::array();
  for (const ImageFormat format : formats) names.push_back(name_of(format));
  return names;
}

Json devices_json() {
  Json devices = Json::array();
  for (const DeviceReport& device : list_devices())
    if (device.usable) devices.push_back({{"id", device.name}, {"name", device.description}, {"default", false}});
  if (!devices.empty()) devices.back()["default"] = true;  // a GPU, if there is one, is listed after the CPU and preferred
  return devices;
}

Json loaded_json(const ModelInMemory& model) {
  return {{"name", model.name},
          {"quant", model.quant},
          {"device", model.device},
          {"bytes", model.bytes},
          {"device_bytes", model.on_gpu ? model.bytes : 0}};
}

// The one that was used last.
Json last_loaded(const Worker* worker) {
  const WorkerState state = worker ? worker->state() : WorkerState{};
  return state.models.empty() ? Json(nullptr) : loaded_json(state.models.back());
}

// All of them, the one that was used last first.
Json all_loaded(const Worker* worker) {
  const WorkerState state = worker ? worker->state() : WorkerState{};
  Json list = Json::array();
  for (auto model = state.models.rbegin(); model != state.models.rend(); ++model) list.push_back(loaded_json(*model));
  return list;
}

// Lanczos, and the networks that can be named.
Json upscaler_names(const ApiContext& api) {
  Json names = {"lanczos"};
  if (api.upscales)
    for (const ModelRecord& r : registered_upscalers(api.app)) names.push_back(r.name);
  return names;
}

Json memory_json(const ApiContext& api) {
  const MemorySize memory = api.device_memory ? api.device_memory() : MemorySize{};
  if (memory.total == 0) return nullptr;
  return {{"total", memory.total}, {"available", memory.available}};
}

// The host of an address, without a path, a name or a password.
std::string host_of(const std::string& url) {
  std::string host = url.substr(url.find("://") == url.npos ? 0 : url.find("://") + 3);
  host.resize(std::min(host.size(), host.find_first_of("/?#")));
  return host.substr(host.rfind('@') == host.npos ? 0 : host.rfind('@') + 1);
}

// Whether the text encoder of the default model writes prompts that are of use.
std::optional<RewriterOffer> local_offer(const ApiContext& api, bool& sees) {
  try {
    const ModelFiles files = api.models.find("");
    const LanguageAbilities can = api.models.abilities(files);
    sees = can.sees;
    if (can.writes && !files.bundled) return RewriterOffer{"local", files.id + " text encoder", ""};
  } catch (const std::exception&) {
    // No model is installed, or a file of it is missing. This call must answer all the same; a request that uses the model says
    // why.
  }
  return std::nullopt;
}

// Who can rewrite prompts, with the model and the host that prompts are sent to; an empty host: they stay here.
Json rewriters_json(const Settings& settings, const ApiContext& api) {
  Json offers = Json::array();
  const bool services_see = !spec_of(settings).upsample_no_images.value_or(false);
  for (const RewriterOffer& offer : offered_rewriters(spec_of(settings), api.app, settings.flag("offline")))
    offers.push_back(
        {{"provider", offer.way}, {"model", offer.model}, {"host", host_of(offer.place)}, {"describes", services_see}});
  bool sees = false;
  if (const auto local = local_offer(api, sees))
    offers.push_back({{"provider", local->way}, {"model", local->model}, {"host", ""}, {"describes", sees}});
  return offers;
}

Json names_of_rewriters(const Settings& settings, const ApiContext& api) {
  Json names = Json::array();
  for (const Json& offer : rewriters_json(settings, api)) names.push_back(offer["provider"]);
  return names;
}

Json info_json(ApiContext& api, const Settings& settings, const Worker* worker) {
  Json defaults = Json::object();
  for (const InstalledModel& model : api.models.main_models()) {
    try {
      const ModelFiles files = api.models.find(model.name);
      // The bundled model knows about 300 words: what it writes is of no use as a prompt.
      const LanguageAbilities can = files.bundled ? LanguageAbilities{} : api.models.abilities(files);
      Json locked = Json::array();
      if (files.distilled) locked.push_back("guidance");
      defaults[model.name] = {
          {"variant", files.id},           {"steps", files.defaults.steps},   {"guidance", files.defaults.guidance},
          {"width", files.defaults.width}, {"height", files.defaults.height}, {"locked", locked},
          {"negative", !files.distilled},  {"rewrites", can.writes},          {"describes", can.writes && can.sees}};
    } catch (const std::exception&) {  // a model with missing parts has no defaults
    }
  }
  const RequestLimits& limits = api.app.limits.request;
  const auto choices = [](const char* name) { return Json(field(name).choices); };
  return {{"version", program_version()},
          {"build", {{"cuda", built_with_cuda()}}},
          {"devices", devices_json()},
          {"loaded", last_loaded(worker)},
          {"models_in_memory", all_loaded(worker)},
          {"device_memory", memory_json(api)},
          {"limits",
           {{"side_min", 64},
            {"side_max", limits.side},
            {"pixels", limits.pixels},
            {"references", limits.references},
            {"batch", limits.batch},
            {"steps", limits.steps},
            {"queue", api.queue.limit()},
            {"prompt", limits.prompt_bytes},
            {"body", kImageBody}}},
          {"defaults", defaults},
          {"samplers", choices("sampler")},
          {"schedules", {"model", "linear", "power", "sigmas"}},
          {"profiles", choices("profile")},
          {"presets", choices("preset")},
          {"styles", all_styles(api.app)},
          {"previews", choices("preview")},
          {"formats", {{"read", names_json(readable_formats())}, {"write", names_json(available_formats())}}},
          {"features",
           {{"mask_service", api.masks != nullptr},
            {"upsample", names_of_rewriters(settings, api)},
            {"rewriters", rewriters_json(settings, api)},
            {"safety", api.app.safety != nullptr},
            {"watermark", true},
            {"training", true},
            {"upscalers", upscaler_names(api)},
            {"regional", true},
            {"projects", false}}}};
}

Json plan_json(const Forecast& f, const PreparedRun& run) {
  int64_t images = 0;
  for (const ResolvedRequest& resolved : run.requests) images += resolved.request.batch;
  const bool host = f.device.starts_with("cpu");
  Json phases = Json::array();
  for (const PhaseForecast& p : f.phases)
    phases.push_back(
        {{"name", name_of(p.phase)}, {"seconds", p.seconds}, {"device", host ? 0 : p.peak()}, {"host", host ? p.peak() : 0}});
  return {{"model", run.model.id},
          {"device", f.device},
          {"fits", f.fits()},
          {"limit_gib", static_cast<double>(f.limit) / (1 << 30)},
          {"phases", phases},
          {"total_seconds", f.seconds()},
          {"peak_device", host ? 0 : f.peak()},
          {"peak_host", host ? f.peak() : 0},
          {"available", f.limit},
          {"placement", f.where},
          {"notes", Json::array()},
          {"images", images}};
}

// Tries the quantisations that need less, so that a request that does not fit is answered with one that does.
Json suggestions(const PreparedRun& run, const AppContext& context) {
  Json list = Json::array();
  for (const char* quant : {"fp8", "int8", "q4_0"}) {
    RequestSpec spec = run.requests.front().spec;
    spec.quant = quant;
    try {
      const ResolvedRequest& first = run.requests.front();
      const Engine engine(forecast_options(spec, first.adapters, context));
      const Forecast f = forecast_memory(engine, run.model, largest_pass(first.request, first.passes));
      if (f.fits()) list.push_back({{"set", {{"quant", quant}}}, {"peak_device", f.peak()}});
    } catch (const Error&) {  // not possible on this device
    }
  }
  return list;
}

HttpResponse plan(const ServerRequest& request, ApiContext& api, const Settings& defaults) {
  const Json body = json_body(request, api.app);
  const std::string kind = kind_of(body);
  std::vector<std::string> warnings;
  Json checked = check_job_request(body, kind, api.queue.assets(), api.app, warnings);
  add_service_mask(checked, api);
  Settings settings = defaults.with(settings_of_job(checked, api.queue.assets(), api.app));
  PromptLine line;
  line.prompt = checked.value("prompt", std::string());
  const PreparedRun run = prepare(settings, {line}, task_of_kind(kind), api.app);
  const ResolvedRequest& first = run.requests.front();
  const Engine engine(forecast_options(first.spec, first.adapters, api.app));
  Forecast f = forecast_of_all_passes(engine, run.model, first.request, first.passes);
  // Wildcards make a request of each image. They differ in their prompts alone.
  if (run.requests.size() > 1) f.add(Forecast(f), static_cast<int>(run.requests.size()) - 1);
  Json json = plan_json(f, run);
  json["notes"] = warnings;
  if (!f.fits()) {
    json["needs"] = f.peak();
    json["suggest"] = suggestions(run, api.app);
  }
  return HttpResponse::json(json);
}

Json model_json(const ModelRecord& record, const ApiContext& api) {
  Json json = to_json(record);
  json["loaded"] = api.is_loaded(record.path.string());
  return json;
}

HttpError without_worker() {
  return HttpError(409, "no_worker", "this server keeps no model in memory: workers in other processes run its jobs");
}

}  // namespace

void add_info_routes(Router& router, ApiContext& api, const Settings& defaults, Worker* worker) {
  const auto add = [&](const char* method, const char* pattern, Scope scope, const char* summary,
                       std::function<HttpResponse(const ServerRequest&)> answer, uint64_t body = 1 << 20) {
    router.add({.method = method,
                .pattern = pattern,
                .handler = answering(std::move(answer)),
                .scope = scope,
                .body_limit = body,
                .summary = summary});
  };
  add("GET", "/api/v1/info", Scope::Generate, "version, devices, limits, defaults of each model",
      [&api, &defaults, worker](const ServerRequest&) { return HttpResponse::json(info_json(api, defaults, worker)); });
  add(
      "POST", "/api/v1/plan", Scope::Generate, "forecast the memory and time of a job without running it",
      [&api, &defaults](const ServerRequest& request) { return plan(request, api, defaults); }, kImageBody);
  add("GET", "/api/v1/models/loaded", Scope::Generate, "the models in memory", [worker](const ServerRequest&) {
    return HttpResponse::json({{"loaded", last_loaded(worker)}, {"items", all_loaded(worker)}});
  });
  add("GET", "/api/v1/loras", Scope::Generate, "registered adapters, with the names of the models that each fits",
      [&api](const ServerRequest&) {
        Json items = Json::array();
        if (const auto registry = look_into_registry(api.app))
          for (const ModelRecord& record : registry->all())
            if (record.type == ModelType::Lora) {
              items.push_back(model_json(record, api));
              items.back()["compatible_with"] = api.models.models_for(record.path);
            }
        return HttpResponse::json({{"items", items}, {"next", nullptr}, {"total", items.size()}});
      });
  if (!worker) return;
  add("POST", "/api/v1/models/unload", Scope::Manage, "free the memory of all loaded models once no job runs",
      [&api](const ServerRequest&) {
        if (!api.unload_model) throw without_worker();
        api.unload_model();
        return HttpResponse::json({{"unloading", true}}, 202);
      });
  add("POST", "/api/v1/models/{key}/load", Scope::Manage, "load a model once no job runs", [&api](const ServerRequest& request) {
    api.models.find(request.parameter("key"));
    if (!api.load_model) throw without_worker();
    api.load_model(api.models.name_of(request.parameter("key")));
    return HttpResponse::json({{"loading", request.parameter("key")}}, 202);
  });
}

}  // namespace flux2
