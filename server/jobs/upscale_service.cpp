#include "server/jobs/upscale_service.h"

#include "base/start_thread.h"

namespace flux2 {

UpscaleService::UpscaleService(EngineOptions options, size_t most_waiting)
    : options_(std::move(options)), most_waiting_(most_waiting) {
  thread_ = start_thread("enlarging images", [this] { run(); });
}

UpscaleService::~UpscaleService() {
  stopping_ = true;
  {
    const std::lock_guard lock(mutex_);
    waiting_.clear();
  }
  news_.notify_all();
  thread_.join();
}

bool UpscaleService::submit(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.size() >= most_waiting_) return false;
    waiting_.push_back(std::move(work));
  }
  news_.notify_all();
  return true;
}

void UpscaleService::wait() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [&] { return waiting_.empty() && !running_; });
}

void UpscaleService::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    news_.wait(lock, [&] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    running_ = true;
    lock.unlock();
    work();
    work = {};  // what it holds may answer a client
    lock.lock();
    running_ = false;
    idle_.notify_all();
  }
}

Image UpscaleService::enlarge(const std::filesystem::path& upscaler, const Image& image, const std::function<bool()>& gone) {
  std::error_code unreadable;
  const auto time = std::filesystem::last_write_time(upscaler, unreadable);
  if (!loaded_ || loaded_file_ != upscaler || loaded_time_ != time) {
    loaded_ = nullptr;  // first, so that two are never in memory
    loaded_ = std::make_unique<NetworkUpscaler>(upscaler, options_);
    loaded_file_ = upscaler;
    loaded_time_ = time;
  }
  EnlargeOptions options{.tile = 0};
  options.cancelled = [&] { return stopping_ || (gone && gone()); };
  return loaded_->enlarge(image, image.width * loaded_->scale(), image.height * loaded_->scale(), options);
}

}  // namespace flux2
