#pragma once

#include <memory>

#include "backend/cpu/kernels/row_math.h"
#include "backend/cpu/memory_pool.h"
#include "base/thread_pool.h"
#include "tensor/peak_meter.h"
#include "tensor/tensor.h"

namespace flux2 {

// The CPU as a Device: a thread pool, and the row arithmetic that the kernels of its table call.
class CpuDevice : public Device {
 public:
  CpuDevice(int threads, std::string description);

  std::string name() const override { return "cpu"; }
  std::string description() const override { return description_; }
  bool is_host() const override { return true; }
  std::shared_ptr<Stream> open_stream() override;

  ThreadPool& pool() { return pool_; }
  template <class C>
  const cpu::RowMath<C>& row_math() const;

  // For open_cpu, while the device is being put together.
  Kernels& table() { return kernels_; }
  cpu::RowMath<float>& float_math() { return float_math_; }

 private:
  ThreadPool pool_;
  std::string description_;
  cpu::RowMath<float> float_math_;
  cpu::RowMath<double> double_math_;
};

template <>
inline const cpu::RowMath<float>& CpuDevice::row_math<float>() const {
  return float_math_;
}
template <>
inline const cpu::RowMath<double>& CpuDevice::row_math<double>() const {
  return double_math_;
}

// Kernels run to the end before they return, so a stream is little more than its memory.
class CpuStream : public Stream, public PeakMeter {
 public:
  explicit CpuStream(std::shared_ptr<CpuDevice> device);

  std::shared_ptr<void> allocate(size_t bytes) override;
  void upload(void* device_memory, const void* host, size_t bytes) override;
  void download(void* host, const void* device_memory, size_t bytes) override;
  void wait() override {}

  // The graph keeps `work` and calls it again on every replay, handing out the memory of the first run in the
  // same order. `work` must therefore ask for the same memory each time, and what it captures must stay alive.
  std::unique_ptr<Graph> capture(const std::function<void()>& work) override;

  size_t peak_bytes() const override { return memory_->peak_bytes(); }
  size_t used_bytes() const override { return memory_->used_bytes(); }
  size_t restart_peak() override { return memory_->restart_peak(); }

  CpuDevice& cpu() const { return static_cast<CpuDevice&>(device()); }
  ThreadPool& pool() const { return cpu().pool(); }

 private:
  class Recording;
  class CpuGraph;

  void run_recorded(const std::function<void()>& work, const std::shared_ptr<Recording>& recording);

  std::shared_ptr<MemoryPool> memory_;
  std::shared_ptr<Recording> recording_;  // while capturing or replaying
};

// How a kernel finds its threads and memory. The tensor must have a stream, as every output has.
inline CpuStream& cpu_stream(const Tensor& t) { return static_cast<CpuStream&>(t.stream()); }

}  // namespace flux2
