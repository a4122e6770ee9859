#pragma once

namespace flux2 {

// While one thread captures a graph, other threads must not call the CUDA runtime: allocating, freeing and the first launch of a
// kernel (which loads it) can invalidate the capture, or fail themselves. A capture takes milliseconds and happens once per
// shape, and for each text that a language model writes, so it runs alone in the process.

// Held around calls of the CUDA runtime. Waits while another thread captures. May be nested, also inside a capture.
class OutsideCaptures {
 public:
  OutsideCaptures();
  OutsideCaptures(const OutsideCaptures&) = delete;
  OutsideCaptures& operator=(const OutsideCaptures&) = delete;
  ~OutsideCaptures();
};

// Held by the thread that captures. It waits for the others to leave, and they wait for it. Not inside OutsideCaptures.
class CaptureAlone {
 public:
  CaptureAlone();
  CaptureAlone(const CaptureAlone&) = delete;
  CaptureAlone& operator=(const CaptureAlone&) = delete;
  ~CaptureAlone();
};

}  // namespace flux2
