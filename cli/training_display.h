#pragma once

#include <chrono>
#include <string>

#include "base/json.h"
#include "cli/console.h"

namespace flux2 {

// The one line that shows how training goes, from the events of a run (train/log/run_log.h).
class TrainingDisplay {
 public:
  explicit TrainingDisplay(Console& console) : console_(console) {}

  void at(const Json& event);

  static std::string duration(double seconds);  // "40 s", "3:20 min", "1:05 h"

 private:
  void step(const Json& event);

  Console& console_;
  int64_t steps_ = 0;
  std::chrono::steady_clock::time_point told_{};
};

}  // namespace flux2
