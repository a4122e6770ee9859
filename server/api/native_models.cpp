// Models over HTTP: the registry, the files behind it, and work on them.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "app/install_model.h"
#include "app/model_lists.h"
#include "app/registry_access.h"
#include "base/text.h"
#include "engine/forecast.h"
#include "hub/registry/check_record.h"
#include "hub/registry/remove_files.h"
#include "server/api/native_models.h"
#include "server/http/errors.h"
#include "server/jobs/model_tasks.h"
#include "server/jobs/planner.h"
#include "server/store/ids.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

bool has_text(const std::string& text, const std::string& part) { return lower(text).find(lower(part)) != std::string::npos; }

bool is_wanted(const ModelRecord& r, const ServerRequest& request) {
  const auto argument = [&](const char* name) { return request.argument(name).value_or(""); };
  const std::string type = argument("type"), variant = argument("variant"), format = argument("format"), q = argument("q");
  if (!type.empty() && type != name_of(r.type)) return false;
  if (!variant.empty() && !has_text(r.variant.empty() ? r.family : r.variant, variant)) return false;
  if (!format.empty() && !has_text(r.format, format)) return false;
  return q.empty() || has_text(r.name, q) || has_text(r.variant, q) || has_text(r.description, q);
}

HttpResponse list_models(const ServerRequest& request, ModelsApi& m) {
  Json items = Json::array();
  if (const auto registry = look_into_registry(m.api.app))
    for (ModelRecord& record : registry->all())
      if (is_wanted(record, request)) items.push_back(model_json(std::move(record), m.api));
  for (const InstalledModel& model : m.api.models.main_models()) {
    ModelRecord bundled;
    bundled.name = model.name;
    if (!is_wanted(bundled, request)) continue;
    if (std::any_of(items.begin(), items.end(), [&](const Json& item) { return item["name"] == model.name; })) continue;
    items.push_back({{"key", nullptr},
                     {"name", model.name},
                     {"type", "main"},
                     {"state", "ready"},
                     {"bundled", true},
                     {"loaded", m.api.is_loaded(model.name)}});
  }
  return HttpResponse::json(list_of(std::move(items)));
}

ModelRecord record_of(const ServerRequest& request, ModelsApi& m) {
  if (const auto registry = look_into_registry(m.api.app)) return record_of(request, *registry);
  throw HttpError(404, "model_not_found", "model not found");
}

template <class T>
void take_number(const Json& value, const std::string& name, double low, double high, std::optional<T>& target) {
  if (value.is_null()) return target.reset();
  const bool fits = std::is_integral_v<T> ? value.is_number_integer() : value.is_number();
  if (!fits) throw HttpError(400, "invalid_type", name + " must be a number", name);
  const double number = value.get<double>();
  if (!(number >= low && number <= high))
    throw HttpError(400, "invalid_value", fmt::format("{} must be between {} and {}", name, low, high), name);
  target = value.get<T>();
}

void take_defaults(const Json& changes, ModelRecord::Defaults& d) {
  if (!changes.is_object()) throw HttpError(400, "invalid_type", "defaults must be an object", "defaults");
  for (const auto& [name, value] : changes.items()) {
    const std::string path = "defaults." + name;
    if (name == "steps") take_number(value, path, 1, 256, d.steps);
    else if (name == "guidance") take_number(value, path, 0, 100, d.guidance);
    else if (name == "width") take_number(value, path, 64, 4096, d.width);
    else if (name == "height") take_number(value, path, 64, 4096, d.height);
    else if (name == "lora_weight") take_number(value, path, -4, 4, d.lora_weight);
    else throw HttpError(400, "invalid_request", "unknown member " + printable(path), path);
  }
}

void take_components(const Json& changes, const Registry& registry, ModelRecord::Components& c) {
  if (!changes.is_object()) throw HttpError(400, "invalid_type", "components must be an object", "components");
  for (const auto& [name, value] : changes.items()) {
    const std::string path = "components." + name;
    std::string* target = name == "vae"            ? &c.vae
                          : name == "text_encoder" ? &c.text_encoder
                          : name == "tokenizer"    ? &c.tokenizer
                                                   : nullptr;
    if (!target) throw HttpError(400, "invalid_request", "unknown member " + printable(path), path);
    target->clear();
    if (value.is_null() || (value.is_string() && value.get_ref<const std::string&>().empty())) continue;
    const auto part = registry.find(text_of(value, path, 200));
    if (!part || name_of(part->type) != name)
      throw HttpError(400, "invalid_value", fmt::format("{} must be the key or name of a registered {}", path, name), path);
    *target = part->key;
  }
}

HttpResponse change_model(const ServerRequest& request, ModelsApi& m) {
  const Json changes = json_body(request, m.api.app);
  Registry registry = open_registry(m.api.app);
  ModelRecord r = record_of(request, registry);
  for (const auto& [name, value] : changes.items()) {
    if (name == "name") {
      r.name = text_of(value, name, 400);
      if (const auto other = registry.find(r.name); other && other->key != r.key)
        throw HttpError(409, "name_taken", "another model has this name", "name");
    } else if (name == "description") {
      r.description = value.is_null() ? "" : text_of(value, name, 20'000);
    } else if (name == "trigger_phrases") {
      if (!value.is_array() || value.size() > 100)
        throw HttpError(400, "invalid_type", "trigger_phrases must be a list of at most 100 strings", name);
      r.triggers.clear();
      for (const Json& phrase : value) r.triggers.push_back(text_of(phrase, name, 400));
    } else if (name == "cover_asset") {
      r.cover_asset = value.is_null() ? "" : text_of(value, name, 64);
      const std::string id = id_without_prefix(r.cover_asset, "ast_");
      if (!r.cover_asset.empty() && (id.empty() || !m.api.queue.assets().get(id)))
        throw HttpError(400, "invalid_value", "cover_asset must be the id of an image", name);
    } else if (name == "defaults") {
      take_defaults(value, r.defaults);
    } else if (name == "components") {
      take_components(value, registry, r.components);
    } else {
      throw HttpError(400, "invalid_request", "unknown member " + printable(name), name);
    }
  }
  registry.update(r);
  m.changed();
  return HttpResponse::json(model_json(r, m.api));
}

HttpResponse remove_model(const ServerRequest& request, ModelsApi& m) {
  Registry registry = open_registry(m.api.app);
  const ModelRecord r = record_of(request, registry);
  if (m.api.is_loaded(r.path.string()))
    throw HttpError(409, "model_loaded", "the model is in memory; unload it first: POST /api/v1/models/unload");
  const std::string files = request.argument("files").value_or("");
  const bool with_files = files == "1" || files == "true";
  const Removal removal = with_files ? plan_removal(r, registry.all(), registry.data_folder()) : Removal{};
  // Files first: interrupted in between, the record still tells what is left to do.
  if (with_files) remove_files(removal, registry.data_folder());
  registry.remove(r.key);
  m.changed();
  return HttpResponse::json(
      {{"key", r.key}, {"name", r.name}, {"files", removal.files.size()}, {"bytes", removal.bytes}, {"kept", removal.kept}});
}

// What was found in the file is updated; what people wrote is kept.
HttpResponse identify_again(const ServerRequest& request, ModelsApi& m) {
  Registry registry = open_registry(m.api.app);
  const ModelRecord r = record_of(request, registry);
  for (Described& part : identify(r.path, m.api.app.log)) {
    if (part.record.type != r.type || !part.usable()) continue;
    ModelRecord found = part.record;
    found.path = r.path;
    found.in_place = r.in_place;
    const ModelRecord stored = registry.add(std::move(found));
    m.changed();
    Json json = model_json(stored, m.api);
    json["evidence"] = part.evidence;
    json["confidence"] = part.confidence;
    return HttpResponse::json(json);
  }
  throw HttpError(400, "invalid_file", fmt::format("the file is no longer a {}", name_of(r.type)));
}

HttpResponse identify_path(const ServerRequest& request, ModelsApi& m) {
  const Json body = json_body(request, m.api.app);
  if (body.size() != 1 || !body.contains("path"))
    throw HttpError(400, "invalid_request", "the body must be {\"path\": \"…\"}", "path");
  const fs::path path = m.folders.checked(text_of(body["path"], "path", 4096), "path");
  Json items = Json::array();
  for (const Described& part : identify(path, m.api.app.log)) {
    Json json = to_json(part);
    json["hint"] = part.hint.plain();
    items.push_back(std::move(json));
  }
  return HttpResponse::json(list_of(std::move(items)));
}

HttpResponse scan(const ServerRequest& request, ModelsApi& m) {
  const Json body = json_body(request, m.api.app);
  std::vector<fs::path> folders;
  bool add = false;
  for (const auto& [name, value] : body.items()) {
    if (name == "path") {
      if (!value.is_null()) folders.push_back(m.folders.checked(text_of(value, name, 4096), name));
    } else if (name == "add") {
      if (!value.is_boolean()) throw HttpError(400, "invalid_type", "add must be true or false", name);
      add = value.get<bool>();
    } else {
      throw HttpError(400, "invalid_request", "unknown member " + printable(name), name);
    }
  }
  std::error_code unreadable;
  if (folders.empty())
    for (const fs::path& folder : model_folders(m.api.app))
      if (fs::is_directory(folder, unreadable)) folders.push_back(folder);
  for (const fs::path& folder : folders)
    if (!fs::is_directory(folder, unreadable)) throw HttpError(404, "not_found", "folder not found", "path");
  const Scan found = scan_models(m.api.app, folders, add);
  if (found.added > 0) m.changed();
  Json items = Json::array();
  for (const ScannedPart& part : found.parts) items.push_back(to_json(part));
  Json json = list_of(std::move(items));
  json["added"] = found.added;
  return HttpResponse::json(json);
}

HttpResponse missing(ModelsApi& m) {
  Json items = Json::array();
  for (const MissingModel& one : missing_models(m.api.app))
    items.push_back({{"key", one.record.key},
                     {"name", one.record.name},
                     {"type", name_of(one.record.type)},
                     {"path", one.record.path.string()},
                     {"state", one.state},
                     {"note", one.note},
                     {"hint", one.hint.plain()}});
  return HttpResponse::json(list_of(std::move(items)));
}

HttpResponse disk(ModelsApi& m) {
  std::map<std::string, std::pair<int64_t, uint64_t>> by_type;
  if (const auto registry = look_into_registry(m.api.app))
    for (const ModelRecord& r : registry->all()) {
      auto& [count, bytes] = by_type[name_of(r.type)];
      ++count, bytes += r.bytes;
    }
  Json items = Json::array();
  for (const auto& [type, used] : by_type) items.push_back({{"type", type}, {"count", used.first}, {"bytes", used.second}});
  std::error_code failure;
  const fs::space_info space = fs::space(data_folder(m.api.app.environment), failure);
  Json json = list_of(std::move(items));
  json["free"] = failure ? Json(nullptr) : Json(space.available);
  json["size"] = failure ? Json(nullptr) : Json(space.capacity);
  return HttpResponse::json(json);
}

// Whether a model fits, from the fastest way to run it to the one that needs least memory.
HttpResponse fit(const ServerRequest& request, ModelsApi& m) {
  const ModelFiles files = m.api.models.find(request.parameter("key"));
  RequestSpec spec = spec_of(m.defaults);
  Request usual;
  usual.width = files.defaults.width;
  usual.height = files.defaults.height;
  Json ways = Json::array(), best = nullptr;
  for (const Offload offload : {Offload::None, Offload::Encoder, Offload::Stream}) {
    EngineOptions options = forecast_options(spec, {}, m.api.app);
    options.offload = offload;
    const Forecast f = forecast_memory(Engine(options), files, usual);
    ways.push_back({{"offload", name_of(offload)}, {"peak", f.peak()}, {"available", f.limit}, {"fits", f.fits()}});
    if (f.fits() && best.is_null()) best = name_of(offload);
  }
  return HttpResponse::json({{"fits", !best.is_null()}, {"offload", best}, {"ways", ways}});
}

HttpResponse accepted(const JobQueue::Submission& submission, ModelsApi& m) {
  const Job job = m.api.queue.submit(submission).job;
  if (m.submitted) m.submitted();
  HttpResponse response = HttpResponse::json(job_to_json(job, m.api.queue.store()), 202);
  response.headers.push_back({"location", "/api/v1/jobs/job_" + job.id});
  return response;
}

}  // namespace

void add_model_routes(Router& router, ModelsApi& models) {
  add_routes(
      router, models,
      {
          {"GET",
           "/api/v1/models",
           Scope::Generate,
           "registered models and their parts",
           list_models,
           {"type", "variant", "format", "q"}},
          {"POST",
           "/api/v1/models/scan",
           Scope::Manage,
           "search a folder for models; add registers them where they are",
           scan,
           {},
           R"({"type":"object","properties":{"path":{"type":["string","null"]},"add":{"type":"boolean"}},"additionalProperties":false})"},
          {"POST",
           "/api/v1/models/identify",
           Scope::Manage,
           "say what a file or folder is",
           identify_path,
           {},
           R"({"type":"object","required":["path"],"properties":{"path":{"type":"string"}},"additionalProperties":false})"},
          {"GET", "/api/v1/models/missing", Scope::Generate, "models whose files or parts are missing",
           [](const ServerRequest&, ModelsApi& m) { return missing(m); }},
          {"GET", "/api/v1/models/disk", Scope::Generate, "space that models take, and free space",
           [](const ServerRequest&, ModelsApi& m) { return disk(m); }},
          {"POST",
           "/api/v1/models/verify",
           Scope::Manage,
           "check files of models, as a job",
           [](const ServerRequest& r, ModelsApi& m) {
             return accepted(verify_submission(json_body(r, m.api.app), m.api.app), m);
           },
           {},
           R"({"type":"object","properties":{"keys":{"type":["array","null"],"items":{"type":"string"}},"values":{"type":["boolean","null"]},)"
           R"("quick":{"type":["boolean","null"]}},"additionalProperties":false})"},
          {"GET", "/api/v1/models/{key}", Scope::Generate, "one model, by key or name",
           [](const ServerRequest& r, ModelsApi& m) { return HttpResponse::json(model_json(record_of(r, m), m.api)); }},
          {"PATCH",
           "/api/v1/models/{key}",
           Scope::Manage,
           "change name, description, trigger phrases, cover, defaults or parts",
           change_model,
           {},
           R"({"type":"object","properties":{"name":{"type":"string"},"description":{"type":["string","null"]},)"
           R"("trigger_phrases":{"type":"array","items":{"type":"string"}},"cover_asset":{"type":["string","null"]},"defaults":{"type":"object"},"components":{"type":"object"}},)"
           R"("additionalProperties":false})"},
          {"DELETE",
           "/api/v1/models/{key}",
           Scope::Manage,
           "unregister a model; files=1 also deletes its files",
           remove_model,
           {"files"}},
          {"POST", "/api/v1/models/{key}/identify", Scope::Manage, "read the file again", identify_again},
          {"GET", "/api/v1/models/{key}/fit", Scope::Generate, "whether the model fits into memory, and how", fit},
          {"POST",
           "/api/v1/models/{key}/convert",
           Scope::Manage,
           "convert or quantise a model, as a job",
           [](const ServerRequest& r, ModelsApi& m) {
             return accepted(convert_submission(r.parameter("key"), json_body(r, m.api.app), m.api.app), m);
           },
           {},
           R"({"type":"object","properties":{"quant":{"type":["string","null"]},"to":{"type":["string","null"]},)"
           R"("name":{"type":["string","null"]},"part":{"type":["string","null"]}},"additionalProperties":false})"},
      });
  add_model_file_routes(router, models);
  add_install_routes(router, models);
}

Json model_json(ModelRecord record, const ApiContext& api) {
  const QuickCheck check = quick_check(record);
  record.state = check.state, record.note = check.note;
  Json json = to_json(record);
  json["loaded"] = api.is_loaded(record.path.string());
  return json;
}

ModelRecord record_of(const ServerRequest& request, const Registry& registry) {
  if (auto record = registry.find(request.parameter("key"))) return *record;
  throw HttpError(404, "model_not_found", "model not found");
}

void add_routes(Router& router, ModelsApi& models, std::vector<ModelRoute> routes) {
  for (ModelRoute& route : routes)
    router.add(
        {.method = route.method,
         .pattern = route.pattern,
         .handler = answering([answer = std::move(route.answer), &models](const ServerRequest& r) { return answer(r, models); }),
         .scope = route.scope,
         .summary = route.summary,
         .arguments = std::move(route.arguments),
         .body = route.body});
}

Json list_of(Json items) {
  const size_t count = items.size();
  return {{"items", std::move(items)}, {"next", nullptr}, {"total", count}};
}

std::string text_of(const Json& value, const std::string& name, size_t longest) {
  if (!value.is_string()) throw HttpError(400, "invalid_type", name + " must be a string", name);
  if (value.get_ref<const std::string&>().size() > longest)
    throw HttpError(400, "invalid_value", fmt::format("{} can have at most {} bytes", name, longest), name);
  return value.get<std::string>();
}

}  // namespace flux2
