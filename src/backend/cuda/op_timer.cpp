#include "backend/cuda/op_timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "backend/cuda/cuda_error.h"

namespace flux2 {

namespace {

struct TimingEvent {
  TimingEvent() { check_cuda(cudaEventCreate(&handle), "timing work"); }
  TimingEvent(const TimingEvent&) = delete;
  TimingEvent& operator=(const TimingEvent&) = delete;
  ~TimingEvent() { cudaEventDestroy(handle); }
  cudaEvent_t handle = nullptr;
};

}  // namespace

OpTimer::~OpTimer() {
  for (const Mark& m : marks_) cudaEventDestroy(m.event);
}

void OpTimer::mark(const char* op, const OpCost& cost) {
  cudaEvent_t event = nullptr;
  check_cuda(cudaEventCreate(&event), "timing an op");
  marks_.push_back({cost.inner ? fmt::format("{} {}x{}x{}", op, cost.rows, cost.columns, cost.inner) : op, cost, event});
  check_cuda(cudaEventRecord(event, stream_), "timing an op");
}

std::vector<OpTime> OpTimer::totals() const {
  check_cuda(cudaEventSynchronize(marks_.back().event), "timing ops");
  std::map<std::string, OpTime> by_op;
  for (size_t i = 1; i < marks_.size(); ++i) {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, marks_[i - 1].event, marks_[i].event), "timing ops");
    OpTime& total = by_op[marks_[i].op];
    total.op = marks_[i].op;
    ++total.calls;
    total.seconds += 1e-3 * static_cast<double>(milliseconds);
    total.flop += marks_[i].cost.flop;
    total.bytes += marks_[i].cost.bytes;
  }
  std::vector<OpTime> list;
  for (auto& [name, total] : by_op) list.push_back(std::move(total));
  std::sort(list.begin(), list.end(), [](const OpTime& a, const OpTime& b) { return a.seconds > b.seconds; });
  return list;
}

double seconds_on(cudaStream_t stream, const std::function<void()>& work) {
  const TimingEvent begin, end;
  check_cuda(cudaEventRecord(begin.handle, stream), "timing work");
  work();
  check_cuda(cudaEventRecord(end.handle, stream), "timing work");
  check_cuda(cudaEventSynchronize(end.handle), "timing work");
  float milliseconds = 0;
  check_cuda(cudaEventElapsedTime(&milliseconds, begin.handle, end.handle), "timing work");
  return 1e-3 * static_cast<double>(milliseconds);
}

}  // namespace flux2
