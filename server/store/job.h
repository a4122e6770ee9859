#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"

namespace flux2 {

// One result image of a job.
struct JobImage {
  int index = 0;
  std::string asset;  // its id
  uint64_t seed = 0;
  int width = 0, height = 0;
};

// Times are milliseconds since 1970; 0 stands for "not yet".
struct Job {
  std::string id;                // 26 characters, sortable by time; JSON adds the prefix "job_"
  std::string kind;              // generate, edit, inpaint, upscale, …
  std::string state = "queued";  // queued, running, cancelling, completed, failed, cancelled
  std::string lane = "gpu";
  std::string project, client_ref, model_key, merge_key;
  int priority = 0;
  int64_t seq = 0;                // the order of arrival, changed by reordering
  Json request = Json::object();  // as it was submitted, images replaced by "asset:ID"
  Json resolved = nullptr;        // with every default filled in
  Json result = nullptr;          // warnings, timings, peak memory
  Json error = nullptr;           // {code, message, hint}
  std::string phase, message;
  int step = 0, steps = 0;
  double progress = 0;
  std::string idempotency_key, request_hash, retry_of, worker;
  int64_t lease_until = 0, created = 0, started = 0, finished = 0;
  bool cancel = false;  // somebody asked for its end
  bool pause = false;   // and will go on with it later
  std::vector<JobImage> images;

  bool is_final() const { return state == "completed" || state == "failed" || state == "cancelled"; }
};

// The keys of the models that a worker has in memory.
struct LoadedModels {
  LoadedModels() = default;
  LoadedModels(std::vector<std::string> all) : keys(std::move(all)) {}
  LoadedModels(const std::string& one) {
    if (!one.empty()) keys.push_back(one);
  }
  LoadedModels(const char* one) : LoadedModels(std::string(one)) {}

  bool contains(const std::string& key) const { return std::find(keys.begin(), keys.end(), key) != keys.end(); }

  std::vector<std::string> keys;
};

struct JobFilter {
  std::string state, kind, project;
  std::string before;  // jobs older than this id
  int limit = 50;
  bool default_project = false;  // only those of the default project, whose id is empty
};

}  // namespace flux2
