#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hub/registry/registry.h"
#include "server/api/native.h"
#include "server/jobs/allowed_folders.h"
#include "server/jobs/model_installs.h"

namespace flux2 {

// What the routes of models need besides the context of all routes.
struct ModelsApi {
  ApiContext& api;
  ModelInstalls& installs;
  const AllowedFolders& folders;         // whose files requests may name
  const Settings& defaults;              // of requests
  std::function<void()> changed;         // the registry was changed: what was found in it before is forgotten
  std::function<void()> submitted = {};  // a job of the lane cpu was submitted
};

// /api/v1/models with everything below it, /api/v1/settings/hub-token.
void add_model_routes(Router& router, ModelsApi& models);

// ---- for the files that implement it ----

struct ModelRoute {
  const char *method, *pattern;
  Scope scope;
  const char* summary;
  std::function<HttpResponse(const ServerRequest&, ModelsApi&)> answer;
  std::vector<std::string> arguments = {};
  const char* body = "";  // its JSON schema
};
void add_routes(Router& router, ModelsApi& models, std::vector<ModelRoute> routes);
void add_install_routes(Router& router, ModelsApi& models);     // downloads, starter sets, the hub and its token
void add_model_file_routes(Router& router, ModelsApi& models);  // related models, moved files, files without a record

Json model_json(ModelRecord record, const ApiContext& api);                       // with its state and whether it is loaded
ModelRecord record_of(const ServerRequest& request, const Registry& registry);    // {key} of the path; throws HttpError 404
Json list_of(Json items);                                                         // {"items", "next", "total"}
std::string text_of(const Json& value, const std::string& name, size_t longest);  // throws HttpError 400

}  // namespace flux2
