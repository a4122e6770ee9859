#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "hub/remote/fetch.h"

namespace flux2 {

// Adds up the progress reports of all threads of a download and passes them on at most four times a second.
class FetchMeter {
 public:
  FetchMeter(const FetchPlan& plan, FetchProgress progress);

  void found(size_t file, uint64_t bytes);    // that were here before
  void received(size_t file, int64_t bytes);  // negative: discarded
  void verifying(size_t file);
  void done(size_t file, uint64_t size);
  void end();

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::string path;
    uint64_t bytes = 0, total = 0;
    bool verifying = false;
  };
  struct Sample {
    Clock::time_point at;
    uint64_t transferred;
  };

  void tell(size_t file, bool always);
  double rate(Clock::time_point now);

  FetchProgress progress_;
  std::mutex mutex_;
  std::vector<Entry> entries_;
  uint64_t transferred_ = 0;
  int done_ = 0;
  size_t last_file_ = 0;
  Clock::time_point next_;
  std::deque<Sample> samples_;
};

}  // namespace flux2
