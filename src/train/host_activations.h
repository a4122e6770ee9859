#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "autograd/checkpoint.h"

namespace flux2 {

// Keeps the inputs of checkpointed blocks in host memory between a block's two runs. A thread of its own copies them on a stream
// of its own: to the host while the next blocks run, and back before they are needed, in the opposite order. On the device, two
// inputs at most wait for their copy to end, and two at most are back early.
class HostActivations final : public InputStore {
 public:
  enum class Copies {
    Real,
    Counted,  // for a rehearsal on a device that counts memory: nothing is copied
  };
  explicit HostActivations(const std::shared_ptr<Stream>& stream, Copies copies = Copies::Real);
  ~HostActivations() override;

  std::function<Tensor()> keep(const Tensor& x) override;

  int64_t host_bytes() const;  // that are allocated

 private:
  struct Entry;
  struct Job {
    std::shared_ptr<Entry> entry;
    bool to_host = false;
    std::shared_ptr<void> after;  // the point of the network's stream from which the memory may be used
  };

  Tensor take(const std::shared_ptr<Entry>& entry);
  void fetch(const std::shared_ptr<Entry>& entry);
  void await(const bool& done);
  void enqueue(Job job);
  void run();
  void copy(const Job& job);
  Tensor host_memory(int64_t bytes);

  const std::shared_ptr<Stream> stream_;
  const Copies copies_;
  std::shared_ptr<Stream> copy_stream_;
  std::deque<std::shared_ptr<Entry>> leaving_;  // oldest first
  std::vector<std::weak_ptr<Entry>> order_;     // as they were kept
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  std::multimap<int64_t, Tensor> free_;  // host memory by size
  int64_t host_bytes_ = 0;
  std::exception_ptr failure_;
  bool stop_ = false;
  std::jthread thread_;
};

}  // namespace flux2
