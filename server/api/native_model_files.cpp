// Keeping the registry and the disk in order: models that belong together, files that were moved, files without a record.
#include <fmt/format.h>

#include "app/model_lists.h"
#include "app/registry_access.h"
#include "hub/registry/relocate.h"
#include "server/api/body_members.h"
#include "server/api/native_models.h"
#include "server/http/errors.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr size_t kMostPaths = 1000, kLongestPath = 4096;

// Links two models, or removes the link. Either answers with the first of them; asking twice changes nothing.
HttpResponse set_related(const ServerRequest& request, ModelsApi& m, bool related) {
  Registry registry = open_registry(m.api.app);
  const ModelRecord one = record_of(request, registry);
  const auto other = registry.find(request.parameter("other"));
  if (!other) throw HttpError(404, "model_not_found", "the other model was not found");
  if (one.key == other->key) throw HttpError(400, "invalid_value", "a model cannot be related to itself", "other");
  if (related) registry.relate(one.key, other->key);
  else registry.unrelate(one.key, other->key);
  m.changed();
  return HttpResponse::json(model_json(*registry.find(one.key), m.api));
}

HttpResponse relocate(const ServerRequest& request, ModelsApi& m) {
  const Json body = json_body(request, m.api.app);
  if (body.size() != 1 || !body.contains("path"))
    throw HttpError(400, "invalid_request", "the body must be {\"path\": \"…\"}", "path");
  Registry registry = open_registry(m.api.app);
  const ModelRecord before = record_of(request, registry);
  if (m.api.is_loaded(before.path.string()))
    throw HttpError(409, "model_loaded", "the model is in memory; unload it first: POST /api/v1/models/unload");
  const fs::path path = m.folders.checked(text_of(body["path"], "path", kLongestPath), "path");
  const ModelRecord moved = relocated(before, path, registry.data_folder(), m.api.app.log);
  registry.update(moved);
  m.changed();
  return HttpResponse::json(model_json(*registry.find(moved.key), m.api));
}

// `items`: what is recognised in all model folders and not registered. `deletable`: what is in the data folder's models/ and
// belongs to no record.
HttpResponse orphan_list(ModelsApi& m) {
  Json items = Json::array(), deletable = Json::array();
  for (const Orphan& orphan : orphans(m.api.app)) items.push_back(to_json(orphan));
  for (const OrphanFiles& files : deletable_orphans(m.api.app)) deletable.push_back(to_json(files));
  std::error_code failure;
  Json json = list_of(std::move(items));
  json["deletable"] = std::move(deletable);
  json["folder"] = fs::weakly_canonical(data_folder(m.api.app.environment) / "models", failure).string();
  return HttpResponse::json(json);
}

HttpResponse delete_orphans(const ServerRequest& request, ModelsApi& m) {
  const Json body = json_body(request, m.api.app);
  BodyMembers members(body, {"paths"});
  const auto paths = members.texts("paths", kMostPaths, kLongestPath);
  if (!paths || paths->empty()) members.wrong("paths", "must be a list of paths from GET /api/v1/models/orphans");
  members.check_all();
  JobStore& store = m.api.queue.store();
  for (const char* lane : {"net", "cpu"})
    if (store.counts(lane).running > 0)
      throw HttpError(409, "models_busy", "models are being installed, checked or converted; wait until that has ended");
  Registry registry = open_registry(m.api.app);
  const std::vector<fs::path> chosen(paths->begin(), paths->end());
  const auto deleted = remove_orphans(chosen, registry.all(), registry.data_folder());
  uint64_t files = 0, bytes = 0;
  for (const OrphanFiles& one : deleted) files += one.files, bytes += one.bytes;
  m.changed();
  return HttpResponse::json({{"deleted", deleted.size()}, {"files", files}, {"bytes", bytes}});
}

}  // namespace

void add_model_file_routes(Router& router, ModelsApi& models) {
  add_routes(
      router, models,
      {
          {"GET", "/api/v1/models/orphans", Scope::Manage, "files in the model folders that are not registered",
           [](const ServerRequest&, ModelsApi& m) { return orphan_list(m); }},
          {"POST",
           "/api/v1/models/orphans/delete",
           Scope::Manage,
           "delete files in the models folder that belong to no model",
           delete_orphans,
           {},
           R"({"type":"object","required":["paths"],"properties":{"paths":{"type":"array","minItems":1,"items":{"type":"string"}}},)"
           R"("additionalProperties":false})"},
          {"PUT", "/api/v1/models/{key}/related/{other}", Scope::Manage, "link two models that belong together",
           [](const ServerRequest& r, ModelsApi& m) { return set_related(r, m, true); }},
          {"DELETE", "/api/v1/models/{key}/related/{other}", Scope::Manage, "remove the link of two models",
           [](const ServerRequest& r, ModelsApi& m) { return set_related(r, m, false); }},
          {"POST",
           "/api/v1/models/{key}/relocate",
           Scope::Manage,
           "give the new path of files that were moved; they must be the same kind of model",
           relocate,
           {},
           R"({"type":"object","required":["path"],"properties":{"path":{"type":"string"}},"additionalProperties":false})"},
      });
}

}  // namespace flux2
