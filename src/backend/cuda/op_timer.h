#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "tensor/device.h"

namespace flux2 {

// The work of one launch, for timing.
struct OpCost {
  double flop = 0, bytes = 0;
  int64_t rows = 0, columns = 0, inner = 0;  // of a product
};

// Marks the stream after every launch; the time between two marks belongs to the op that stands before the second,
// the gap before it included.
class OpTimer {
 public:
  explicit OpTimer(cudaStream_t stream) : stream_(stream) { mark("", {}); }
  OpTimer(const OpTimer&) = delete;
  OpTimer& operator=(const OpTimer&) = delete;
  ~OpTimer();

  void mark(const char* op, const OpCost& cost);
  std::vector<OpTime> totals() const;  // waits for the last mark

 private:
  struct Mark {
    std::string op;
    OpCost cost;
    cudaEvent_t event;
  };
  cudaStream_t stream_;
  std::vector<Mark> marks_;
};

// Seconds that the stream spends on `work`, waiting for its end.
double seconds_on(cudaStream_t stream, const std::function<void()>& work);

}  // namespace flux2
