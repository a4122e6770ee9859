#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "server/store/sql.h"

namespace flux2 {

// A training run. Times are milliseconds since 1970; 0 stands for "not yet".
struct Run {
  std::string id;                   // 26 characters; JSON adds the prefix "run_"
  std::string name;                 // unique; its files have this name
  std::string state = "preparing";  // preparing, caching, running, paused, saving, completed, failed, stopped
  Json request = Json::object();    // model, preset, options by name
  std::string folder;               // where it writes, relative to the data folder
  std::string job;                  // the one that runs it, or ran it last
  std::string wish;                 // what the one who runs it shall do next: pause, stop, drop, restart; empty: go on
  Json figures = Json::object();    // of the last step: epoch, epochs, loss, loss_avg, lr, it_per_s, eta_s, device_gib
  Json error = nullptr;             // {code, message, hint}
  int64_t step = 0, steps = 0;
  int64_t created = 0, started = 0, finished = 0;

  // Somebody runs it or will; otherwise it rests until it is resumed.
  bool is_active() const { return state == "preparing" || state == "caching" || state == "running" || state == "saving"; }
};

// What is known of a step. A value that is not known is NaN.
struct RunMetric {
  int64_t step = 0;
  double loss = 0, loss_avg = 0, lr = 0, grad_norm = 0, it_per_s = 0, device_gib = 0;
};

struct StoredSample {
  int64_t step = 0, index = 0;
  std::string asset, prompt;
  uint64_t seed = 0;
};

struct StoredCheckpoint {
  int64_t step = 0, epoch = 0;
  std::string path;  // relative to the folder of the run
  std::string sha256;
  int64_t bytes = 0;
  bool kept = false;
};

// The tables of training, as processes share them. Every call is one transaction and may come from any thread.
class RunStore {
 public:
  explicit RunStore(SqlDatabase& database);

  void insert(const Run& run);         // throws Refused if the name is taken
  void remove(const std::string& id);  // one that never began
  std::optional<Run> get(const std::string& id);
  std::optional<Run> find(const std::string& name);
  std::vector<Run> list(const std::string& before, int limit);  // newest first; those older than the id `before`
  std::vector<Run> unfinished();                                // active ones, and those that are paused while they hold a job

  // state, figures, error, step, steps, started and finished; not what others may change meanwhile: request, wish and job.
  void save(const Run& run);
  void set_job(const std::string& id, const std::string& job);
  bool replace_job(const std::string& id, const std::string& before, const std::string& now);  // false: it was another one
  void set_wish(const std::string& id, const std::string& wish);
  std::string wish(const std::string& id);
  void set_request(const std::string& id, const Json& request);

  void add_metrics(const std::string& run, std::span<const RunMetric> metrics);  // replaces those of the same steps
  void drop_metrics_after(const std::string& run, int64_t step);
  std::vector<RunMetric> metrics(const std::string& run, int64_t from, int64_t to);  // both included, by step

  void add_sample(const std::string& run, const StoredSample& sample);
  std::vector<StoredSample> samples(const std::string& run);

  void add_checkpoint(const std::string& run, const StoredCheckpoint& checkpoint);
  std::vector<StoredCheckpoint> checkpoints(const std::string& run);  // by step
  void remove_checkpoint(const std::string& run, const std::string& path);

 private:
  SqlDatabase& database_;
};

}  // namespace flux2
