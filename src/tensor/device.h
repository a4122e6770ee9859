#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/system_memory.h"
#include "tensor/dtype.h"
#include "tensor/kernels.h"

namespace flux2 {

class Stream;

// Exact: matrix inputs stay f32 and every sum has a fixed order, so a row's result depends neither on the rows
// beside it nor on the number of threads. Fast: matrix inputs may be rounded to bf16.
enum class Profile { Exact, Fast };

// The cost of all calls of one op during Stream::time_ops.
struct OpTime {
  std::string op;  // "swiglu"; products carry their shape: "linear 4608x3072x12288"
  int calls = 0;
  double seconds = 0;
  double flop = 0, bytes = 0;  // of all calls; 0 if the op does not report it
};

// One CPU or GPU and the kernels chosen for it when it was opened.
class Device : public std::enable_shared_from_this<Device> {
 public:
  virtual ~Device() = default;

  virtual std::string name() const = 0;         // "cpu", "cuda:0"
  virtual std::string description() const = 0;  // "Neoverse-V1, 2 threads, neon bf16"
  virtual bool is_host() const = 0;             // its kernels read ordinary memory, including mapped files
  virtual std::shared_ptr<Stream> open_stream() = 0;
  virtual MemorySize memory() const { return system_memory_size(); }
  // Whether repeated work should be captured, because launching a kernel is expensive on this device.
  virtual bool prefers_graphs() const { return false; }
  // Whether `linear` multiplies weights of this dtype with activations quantised to it, F8_E4M3 or I8 (see QuantiseArgs).
  virtual bool multiplies(DType) const { return false; }
  // Whether `attention` can round to e4m3 (AttentionArgs::eight_bits).
  virtual bool attends_in_8_bits() const { return false; }

  // The properties of this GPU that PyTorch's random numbers depend on; empty for other devices.
  virtual std::optional<CudaGeometry> random_geometry() const { return std::nullopt; }

  const Kernels& kernels() const { return kernels_; }

 protected:
  Kernels kernels_;
};

// Work that was captured once and can be replayed on the same memory.
class Graph {
 public:
  virtual ~Graph() = default;
  virtual void replay() = 0;
};

// An ordered queue on a device with its own memory pool. Kernels enqueue and return. Memory returned to the pool is reused only
// by later work on the same stream, so no synchronisation is needed.
class Stream : public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(std::shared_ptr<Device> device) : device_(std::move(device)) {}
  virtual ~Stream() = default;

  Device& device() const { return *device_; }

  // Memory in stream order, aligned to at least 64 bytes. It returns to the pool when its last owner is destroyed.
  virtual std::shared_ptr<void> allocate(size_t bytes) = 0;

  // Ordered copies. `download` returns when the bytes have arrived; `upload` when `host` may be reused.
  virtual void upload(void* device_memory, const void* host, size_t bytes) = 0;
  virtual void download(void* host, const void* device_memory, size_t bytes) = 0;

  // Waits for everything that is enqueued. Throws asynchronous failures, with the name of the op that caused them.
  virtual void wait() = 0;

  // mark() records a point in this queue. wait_for() makes later work of this queue wait for a point in another queue of the same
  // device. On devices that run work immediately, both do nothing.
  virtual std::shared_ptr<void> mark() { return nullptr; }
  virtual void wait_for(const std::shared_ptr<void>& /*mark*/) {}

  // Runs `work` and records it. Memory allocated inside stays reserved for the graph, so the tensors created by `work` hold the
  // results after every replay(). Results written into existing tensors are available immediately. Inputs are read in place:
  // write new values into them before a replay.
  virtual std::unique_ptr<Graph> capture(const std::function<void()>& work) = 0;

  // Runs `work` and measures how long the device spends on each op, slowest first. Empty if the device cannot measure this.
  virtual std::vector<OpTime> time_ops(const std::function<void()>& work) {
    work();
    return {};
  }

  // Largest number of bytes handed out at once, on a GPU by all its streams together; and those of this stream now.
  virtual size_t peak_bytes() const = 0;
  virtual size_t used_bytes() const = 0;

  // 1, 2, 3 …: the order in which ops were recorded, by which gradients are added up.
  uint64_t next_sequence() { return ++sequence_; }

 private:
  std::shared_ptr<Device> device_;
  uint64_t sequence_ = 0;
};

}  // namespace flux2
