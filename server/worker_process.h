#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <vector>

#include "app/context.h"
#include "app/settings.h"
#include "server/storage_options.h"

namespace flux2 {

struct WorkerProcessOptions {
  StorageOptions storage;
  std::chrono::seconds idle_unload{0};
  int max_batch = 0;
  std::chrono::milliseconds batch_wait{5};
  int max_models = 4;
  bool preload = false;
  std::vector<std::filesystem::path> model_roots;  // folders whose files a request may name, as for a server
  std::chrono::milliseconds preempt_wait{30'000};
};

// A worker without a server: runs the jobs that servers on this or other machines have stored, and answers no requests.
class WorkerProcess {
 public:
  // `defaults` are the settings that jobs do not set themselves.
  WorkerProcess(AppContext context, Settings defaults, WorkerProcessOptions options);
  ~WorkerProcess();

  void start();
  void stop();  // gives the running jobs back to the queue

 private:
  struct Parts;
  std::unique_ptr<Parts> parts_;
};

}  // namespace flux2
