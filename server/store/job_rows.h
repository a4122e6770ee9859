#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/store/job_store.h"
#include "server/store/sql.h"

namespace flux2 {

// The SQL of the job tables. Every call runs inside a transaction of the caller.
class JobRows {
 public:
  JobRows(SqlConnection& sql, int64_t lease_ms) : sql_(sql), lease_ms_(lease_ms) {}

  SqlConnection& sql() const { return sql_; }
  int64_t one(std::string_view sql, const std::vector<std::string>& values = {}) const;  // 0 without a row

  // The last parameter of the condition is the number of rows.
  std::vector<Job> select(const std::string& condition, const std::vector<std::string>& values, int64_t limit) const;
  std::optional<Job> find(const std::string& id) const;
  std::optional<Job> find_and_lock(const std::string& id) const;  // nobody else changes it until the transaction ends
  std::vector<Job> first_waiting(const std::string& lane, int64_t limit) const;
  // The first waiting job that no other transaction holds, locked; of this lane and, unless empty, with this merge key.
  std::optional<Job> take_waiting(const std::string& lane, const std::string& merge_key = {}) const;
  std::optional<Job> take(const std::string& id) const;  // this one, if it waits and is free
  JobStore::Counts count(const std::string& lane) const;
  bool holds(const std::string& id, const std::string& worker) const;  // the worker runs this job, which is locked
  bool is_paused() const;

  void add(const Job& job) const;
  Job hold(Job job, const std::string& worker, int64_t now) const;  // it runs from now on
  void set_progress(const Job& job) const;
  void finish(const Job& job) const;
  void end(const std::string& id, const char* state, int64_t now) const;
  void requeue(const std::string& id) const;
  void add_image(const std::string& id, const JobImage& image) const;
  void forget_images(const std::string& id) const;
  // The jobs, which wait in one lane, take each other's places, so that they run in this order.
  void exchange_places(const std::vector<Job>& jobs) const;

 private:
  std::vector<JobImage> images_of(const std::string& id) const;

  SqlConnection& sql_;
  int64_t lease_ms_;
};

// What the column `cancel` says. Versions that know no pause take every number but 0 for a cancel.
constexpr int64_t kAskedToCancel = 1, kAskedToPause = 2;

constexpr int64_t kAllRows = std::numeric_limits<int64_t>::max();
constexpr const char* kHeld = "state IN ('running', 'cancelling')";  // by a worker
constexpr const char* kFinal = "state IN ('completed', 'failed', 'cancelled')";

}  // namespace flux2
