#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "app/context.h"
#include "app/install_model.h"
#include "server/jobs/allowed_folders.h"
#include "server/jobs/job_queue.h"
#include "server/jobs/task_worker.h"

namespace flux2 {

// Installations of models over HTTP. Each is a job of the lane net; one that is paused and resumed is a chain of jobs, and the
// first of them gives it its name: ins_ID. Thread-safe.
class ModelInstalls {
 public:
  ModelInstalls(const AppContext& context, JobQueue& queue, AllowedFolders folders)
      : context_(context), queue_(queue), folders_(std::move(folders)) {}

  // {"source", "name", "in_place", "revision"}. Throws HttpError. Returns the installation as the API shows it.
  Json start(const Json& request);
  Json list();                       // newest first
  Json show(const std::string& id);  // throws HttpError 404
  Json pause(const std::string& id);
  Json resume(const std::string& id);
  Json restart(const std::string& id);  // from the first byte of every file that is incomplete
  Json restart_file(const std::string& id, const std::string& path);
  Json cancel(const std::string& id);
  void remove(const std::string& id);  // from the list, when it has ended
  int64_t prune();                     // all that have ended; paused ones stay

  void run(RunningTask& task);  // the work itself
  // Called when models were installed.
  void when_installed(std::function<void()> call) { installed_ = std::move(call); }
  void when_submitted(std::function<void()> call) { submitted_ = std::move(call); }

 private:
  struct File {
    std::string path, state = "waiting";
    uint64_t bytes = 0, total = 0;
  };
  struct Live {  // progress of a job that runs here; other processes read what the job's row has of it
    std::vector<File> files;
    uint64_t bytes = 0, total = 0;
    double speed = 0, eta_s = -1;
    Json to_json() const;
  };
  struct Chain {
    std::string root;
    Job last;
    std::vector<std::string> jobs;  // newest first
  };

  std::vector<Chain> chains();
  Chain chain_of(const std::string& id);
  static std::string state_of(const Chain& chain);
  Json shown(const Chain& chain);
  Json again(const Chain& chain, const Json& changes);
  std::string submit_again(const Chain& chain, const Json& changes);  // returns the new job
  InstallRequest request_of(const Job& job) const;
  void tell(RunningTask& task, const std::string& root, const FetchStatus& status);

  const AppContext& context_;
  JobQueue& queue_;
  AllowedFolders folders_;
  std::function<void()> installed_, submitted_;
  std::mutex mutex_;
  std::map<std::string, Live> live_;  // by job
};

// "ins_01J…" of a job.
std::string install_id(const std::string& root);

}  // namespace flux2
