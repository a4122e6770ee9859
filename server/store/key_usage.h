#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "server/store/sql.h"

namespace flux2 {

// What the jobs of each API key have used. Kept beside the jobs, so that several processes on one store count together.
// Thread-safe.
class KeyUsage {
 public:
  explicit KeyUsage(std::shared_ptr<SqlDatabase> database);

  struct Used {
    int64_t jobs = 0;    // that wait or run
    int64_t work = 0;    // of the jobs since `since`, in megapixels times steps
    int64_t oldest = 0;  // when the first of those was submitted, ms; 0: there is none
  };
  Used used(const std::string& key, int64_t since) const;
  void add(const std::string& key, const std::string& job, int64_t work, int64_t now);
  void prune(int64_t before);  // jobs that have ended, submitted before that time

 private:
  std::shared_ptr<SqlDatabase> database_;
};

}  // namespace flux2
