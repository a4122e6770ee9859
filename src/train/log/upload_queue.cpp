#include "train/log/upload_queue.h"

#include "base/error.h"
#include "base/start_thread.h"

namespace flux2 {

UploadQueue::UploadQueue(HubUpload upload, bool in_background, Log log) : upload_(std::move(upload)), log_(std::move(log)) {
  if (in_background) thread_ = start_thread_if_possible([this](const std::stop_token& stop) { run(stop); });
}

UploadQueue::~UploadQueue() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  thread_.join();
}

void UploadQueue::add(const std::filesystem::path& path, const std::string& summary) {
  if (!thread_.joinable()) {
    upload_now({path, summary});
    return;
  }
  const std::lock_guard lock(mutex_);
  jobs_.push_back({path, summary});
  changed_.notify_all();
}

void UploadQueue::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.empty(); });
}

void UploadQueue::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !jobs_.empty(); }) && !stop.stop_requested()) {
    const Job job = jobs_.front();
    lock.unlock();
    upload_now(job);
    lock.lock();
    jobs_.pop_front();
    changed_.notify_all();
  }
}

void UploadQueue::upload_now(const Job& job) {
  try {
    if (!created_) upload_.create_repository();
    created_ = true;
    upload_.upload(files_to_upload(job.path), job.summary);
  } catch (const Error& e) {
    log_.warn("{} was not uploaded: {}", job.path.filename().string(), e.what());
  } catch (const std::exception& e) {
    log_.warn("{} was not uploaded: {}", job.path.filename().string(), e.what());
  }
}

}  // namespace flux2
