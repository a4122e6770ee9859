#include "server/model_work.h"

#include "server/jobs/model_tasks.h"

namespace flux2 {

ModelWork::ModelWork(ApiContext& api, const Settings& defaults, AllowedFolders folders, const std::string& worker_name,
                     std::function<void()> changed)
    : folders_(std::move(folders)),
      installs_(api.app, api.queue, folders_),
      routes_{.api = api, .installs = installs_, .folders = folders_, .defaults = defaults, .changed = std::move(changed)},
      net_(api.app, api.queue, {.name = worker_name + "/net", .lane = "net", .threads = 2}),
      cpu_(api.app, api.queue, {.name = worker_name + "/cpu", .lane = "cpu", .threads = 1}) {
  installs_.when_installed(routes_.changed);
  installs_.when_submitted([this] { net_.wake(); });
  routes_.submitted = [this] { cpu_.wake(); };
  net_.add("download", [this](RunningTask& task) { installs_.run(task); });
  cpu_.add("verify", run_verify);
  cpu_.add("convert", [this](RunningTask& task) {
    run_convert_task(task);
    routes_.changed();
  });
}

void ModelWork::start() {
  net_.start();
  cpu_.start();
}

void ModelWork::stop() {
  net_.stop();
  cpu_.stop();
}

}  // namespace flux2
