#include "backend/cuda/capture_gate.h"

#include <atomic>
#include <mutex>

#include "base/error.h"

namespace flux2 {

namespace {

// A lock with readers and one writer that lets a waiting writer go first: std::shared_mutex may keep it waiting for as long as
// readers follow one another, which sessions that launch kernels do.
class Gate {
 public:
  void enter() {
    for (;;) {
      closed_.wait(true);
      inside_.fetch_add(1);
      if (!closed_) return;
      leave();
    }
  }
  void leave() {
    if (inside_.fetch_sub(1) == 1 && closed_) inside_.notify_all();
  }
  void close() {
    capturing_.lock();
    closed_ = true;
    for (int n; (n = inside_) != 0;) inside_.wait(n);
  }
  void open() {
    closed_ = false;
    closed_.notify_all();
    capturing_.unlock();
  }

 private:
  std::mutex capturing_;
  std::atomic<bool> closed_ = false;
  std::atomic<int> inside_ = 0;
};

// Never destroyed: memory may be freed while the process ends.
Gate& gate() {
  static auto* the_gate = new Gate;
  return *the_gate;
}

thread_local int depth = 0;  // how many of the two guards this thread holds

}  // namespace

OutsideCaptures::OutsideCaptures() {
  if (depth++ == 0) gate().enter();
}

OutsideCaptures::~OutsideCaptures() {
  if (--depth == 0) gate().leave();
}

CaptureAlone::CaptureAlone() {
  require(depth == 0, "a capture began inside another call of the CUDA runtime");
  gate().close();
  ++depth;
}

CaptureAlone::~CaptureAlone() {
  --depth;
  gate().open();
}

}  // namespace flux2
