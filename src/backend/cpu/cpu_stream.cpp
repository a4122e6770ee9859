#include "backend/cpu/cpu_stream.h"

#include <cstring>
#include <map>
#include <vector>

namespace flux2 {

CpuDevice::CpuDevice(int threads, std::string description)
    : pool_(threads),
      description_(std::move(description)),
      float_math_(cpu::scalar_row_math<float>()),
      double_math_(cpu::scalar_row_math<double>()) {}

std::shared_ptr<Stream> CpuDevice::open_stream() {
  return std::make_shared<CpuStream>(std::static_pointer_cast<CpuDevice>(shared_from_this()));
}

// The memory of one captured run. While capturing, blocks the work lets go of are reused by its later requests
// (the replay makes the same requests in the same order, so reuse is as safe there) but never leave the recording.
class CpuStream::Recording : public std::enable_shared_from_this<CpuStream::Recording> {
 public:
  explicit Recording(std::shared_ptr<MemoryPool> memory) : memory_(std::move(memory)) {}

  std::shared_ptr<void> allocate(size_t bytes) { return capturing_ ? first_run(bytes) : again(bytes); }

  void finish() { capturing_ = false; }
  void rewind() { next_ = 0; }

 private:
  struct Request {
    size_t bytes;
    void* block;
  };

  std::shared_ptr<void> first_run(size_t bytes) {
    void* block;
    if (const auto idle = idle_.find(bytes); idle != idle_.end()) {
      block = idle->second;
      idle_.erase(idle);
    } else {
      blocks_.push_back(memory_->allocate(bytes));
      block = blocks_.back().get();
    }
    requests_.push_back({bytes, block});
    return {block, [self = shared_from_this(), bytes](void* p) {
              if (self->capturing_) self->idle_.emplace(bytes, p);
            }};
  }

  std::shared_ptr<void> again(size_t bytes) {
    if (next_ == requests_.size() || requests_[next_].bytes != bytes)
      fail(ErrorCode::Internal, "captured work asked for {} bytes that it did not ask for when it was captured", bytes);
    return {requests_[next_++].block, [self = shared_from_this()](void*) {}};
  }

  std::shared_ptr<MemoryPool> memory_;
  std::vector<std::shared_ptr<void>> blocks_;
  std::multimap<size_t, void*> idle_;  // by requested size
  std::vector<Request> requests_;
  size_t next_ = 0;
  bool capturing_ = true;
};

class CpuStream::CpuGraph : public Graph {
 public:
  CpuGraph(std::shared_ptr<CpuStream> stream, std::function<void()> work, std::shared_ptr<Recording> recording)
      : stream_(std::move(stream)), work_(std::move(work)), recording_(std::move(recording)) {}

  void replay() override {
    recording_->rewind();
    stream_->run_recorded(work_, recording_);
  }

 private:
  std::shared_ptr<CpuStream> stream_;
  std::function<void()> work_;
  std::shared_ptr<Recording> recording_;
};

CpuStream::CpuStream(std::shared_ptr<CpuDevice> device) : Stream(std::move(device)), memory_(std::make_shared<MemoryPool>()) {}

std::shared_ptr<void> CpuStream::allocate(size_t bytes) {
  return recording_ ? recording_->allocate(bytes) : memory_->allocate(bytes);
}

void CpuStream::upload(void* device_memory, const void* host, size_t bytes) {
  if (bytes > 0) std::memcpy(device_memory, host, bytes);
}

void CpuStream::download(void* host, const void* device_memory, size_t bytes) {
  if (bytes > 0) std::memcpy(host, device_memory, bytes);
}

void CpuStream::run_recorded(const std::function<void()>& work, const std::shared_ptr<Recording>& recording) {
  require(!recording_, "captures and replays on one stream do not nest");
  recording_ = recording;
  struct Leave {
    CpuStream& stream;
    ~Leave() { stream.recording_ = nullptr; }
  } leave{*this};
  work();
}

std::unique_ptr<Graph> CpuStream::capture(const std::function<void()>& work) {
  auto recording = std::make_shared<Recording>(memory_);
  run_recorded(work, recording);
  recording->finish();
  auto self = std::static_pointer_cast<CpuStream>(shared_from_this());
  return std::make_unique<CpuGraph>(std::move(self), work, std::move(recording));
}

}  // namespace flux2
