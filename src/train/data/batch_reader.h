#pragma once

#include <condition_variable>
#include <exception>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "train/data/training_set.h"

namespace flux2 {

// Loads batches in order, one ahead of the consumer, on a thread of its own.
class BatchReader {
 public:
  BatchReader(const TrainingSet& set, std::vector<BatchPlan> plans);  // the set must outlive the reader
  BatchReader(const BatchReader&) = delete;
  BatchReader& operator=(const BatchReader&) = delete;
  ~BatchReader();

  // The next batch; none at the end. What went wrong on the thread is thrown here, at the batch it concerns.
  std::optional<LoadedBatch> next();

 private:
  void read_all();

  const TrainingSet& set_;
  std::vector<BatchPlan> plans_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<LoadedBatch> ready_;
  std::exception_ptr error_;
  size_t taken_ = 0;
  bool stopping_ = false;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace flux2
