#pragma once

#include <functional>

#include "server/api/native_models.h"
#include "server/jobs/task_worker.h"

namespace flux2 {

// Everything about models besides running them: the routes, downloads (two at a time), and conversions and checks (one at a
// time).
class ModelWork {
 public:
  // `worker_name` is the beginning of the names of its workers. `changed` is called when models were added, changed or removed.
  ModelWork(ApiContext& api, const Settings& defaults, AllowedFolders folders, const std::string& worker_name,
            std::function<void()> changed);

  void add_routes(Router& router) { add_model_routes(router, routes_); }
  void start();
  void stop();  // work under way goes back to the queue

 private:
  AllowedFolders folders_;
  ModelInstalls installs_;
  ModelsApi routes_;
  TaskWorker net_, cpu_;
};

}  // namespace flux2
