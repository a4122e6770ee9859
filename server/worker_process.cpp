#include "server/worker_process.h"

#include <filesystem>

#include "base/error.h"
#include "server/jobs/store_watcher.h"
#include "server/jobs/worker.h"
#include "server/storage.h"
#include "server/store/ids.h"
#include "server/store/run_store.h"
#include "server/store/sql_store.h"
#include "server/worker_names.h"

namespace flux2 {

namespace {

const StorageOptions& with_folder(const StorageOptions& storage) {
  std::error_code failure;
  std::filesystem::create_directories(storage.data, failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot create the data folder {}: {}", storage.data.string(), failure.message());
  return storage;
}

}  // namespace

struct WorkerProcess::Parts {
  Parts(AppContext c, Settings d, WorkerProcessOptions o)
      : context(std::move(c)),
        options(std::move(o)),
        database(open_database(with_folder(options.storage))),
        assets(options.storage.data, open_blobs(options.storage, context), database),
        store(open_job_store(database, options.storage.lease)),
        runs(*database),
        events(*store),
        queue(*store, assets, events, 1),
        watcher(queue, context.log),
        worker(context, std::move(d), queue,
               {.name = new_worker_name(),
                .idle_unload = options.idle_unload,
                .max_batch = options.max_batch,
                .batch_wait = options.batch_wait,
                .max_models = static_cast<size_t>(options.max_models),
                .lease = options.storage.lease,
                .runs = &runs,
                .allowed = allowed_folders(),
                .preempt_wait = options.preempt_wait}) {}

  AllowedFolders allowed_folders() const {
    std::vector<std::filesystem::path> folders = options.model_roots;
    for (const std::filesystem::path& folder : model_folders(context)) folders.push_back(folder);
    folders.push_back(options.storage.data);
    return AllowedFolders(std::move(folders));
  }

  AppContext context;
  WorkerProcessOptions options;
  std::shared_ptr<SqlDatabase> database;
  AssetStore assets;
  std::unique_ptr<JobStore> store;
  RunStore runs;
  Events events;
  JobQueue queue;
  StoreWatcher watcher;
  Worker worker;
};

WorkerProcess::WorkerProcess(AppContext context, Settings defaults, WorkerProcessOptions options)
    : parts_(std::make_unique<Parts>(std::move(context), std::move(defaults), std::move(options))) {}

WorkerProcess::~WorkerProcess() { stop(); }

void WorkerProcess::start() {
  Parts& p = *parts_;
  end_leases_of_the_dead(*p.store, now_ms());
  p.watcher.start();
  p.worker.start();
  if (p.options.preload) p.worker.load("");
}

void WorkerProcess::stop() {
  parts_->worker.stop();
  parts_->watcher.stop();
}

}  // namespace flux2
