#pragma once

#include <functional>

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

// /api/v1/models, /api/v1/settings/hub-token.
void add_model_routes(Router& router, ModelsApi& models);

}  // namespace flux2
