#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/jobs/job_queue.h"

namespace flux2 {

// What the clients of this family share, as that program has it: one current job, one chosen model, options. Thread-safe.
class SdapiState {
 public:
  explicit SdapiState(JobQueue& queue) : queue_(queue) {}

  void begin(const std::string& job);
  void end(const std::string& job);
  std::optional<Job> current() const;  // the job of this family that runs, else the one that waits longest
  void interrupt();                    // cancels it
  void skip();                         // ends its current batch (n_iter); cancels it if there are no more
  bool interrupted() const;

  std::string model() const;
  void choose_model(const std::string& name);

  Json options() const;  // those that were set
  // Keeps the members of an object. Throws HttpError 422 when there are too many.
  void set_options(const Json& options);

 private:
  JobQueue& queue_;
  mutable std::mutex mutex_;
  std::vector<std::string> jobs_;
  std::string model_;
  Json options_ = Json::object();
  bool interrupted_ = false;
};

}  // namespace flux2
