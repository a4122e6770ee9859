#pragma once

#include <cstddef>

namespace flux2 {

// Implemented by streams that can measure the memory of one phase of their work.
class PeakMeter {
 public:
  // The largest number of bytes in use at once since the previous call. Stream::peak_bytes() is not affected.
  virtual size_t restart_peak() = 0;

 protected:
  ~PeakMeter() = default;
};

}  // namespace flux2
