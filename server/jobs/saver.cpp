#include "server/jobs/saver.h"

#include <utility>

#include "base/start_thread.h"

namespace flux2 {

Saver::Saver(Limits limits, const char* what) : limits_(limits), thread_(start_thread(what, [this] { run(); })) {}

Saver::~Saver() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  added_.notify_all();
}

void Saver::add(Owner owner, int64_t bytes, std::function<void()> save) {
  {
    std::unique_lock lock(mutex_);
    // An image that is larger than the limit is taken when nothing else waits.
    done_.wait(lock, [&] { return saves_ == 0 || (saves_ < limits_.saves && bytes_ + bytes <= limits_.bytes); });
    ++saves_, bytes_ += bytes;
    ++owners_[owner].saves;
    tasks_.push_back({.owner = owner, .bytes = bytes, .save = std::move(save), .end = {}});
  }
  added_.notify_one();
}

void Saver::finish(Owner owner, End end) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back({.owner = owner, .bytes = 0, .save = {}, .end = std::move(end)});
  }
  added_.notify_one();
}

bool Saver::has_failed(Owner owner) const {
  const std::lock_guard lock(mutex_);
  const auto found = owners_.find(owner);
  return found != owners_.end() && found->second.error;
}

std::exception_ptr Saver::drain(Owner owner) {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] {
    const auto found = owners_.find(owner);
    return found == owners_.end() || found->second.saves == 0;
  });
  const auto node = owners_.extract(owner);
  return node ? node.mapped().error : nullptr;
}

void Saver::drain() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [&] { return tasks_.empty(); });
}

void Saver::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    added_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    perform(tasks_.front(), lock);
    tasks_.pop_front();
    done_.notify_all();
  }
}

// The task stays at the front meanwhile: others may only add at the end, which leaves references to it valid.
void Saver::perform(Task& task, std::unique_lock<std::mutex>& lock) {
  if (task.end) {
    const auto node = owners_.extract(task.owner);
    const std::exception_ptr error = node ? node.mapped().error : nullptr;
    lock.unlock();
    task.end(error);
    task.end = {};  // what it holds may be large: freed before the lock is taken
    lock.lock();
    return;
  }
  std::exception_ptr error;
  if (!owners_[task.owner].error) {
    lock.unlock();
    try {
      task.save();
    } catch (...) {
      error = std::current_exception();
    }
    task.save = {};  // it holds the image
    lock.lock();
  }
  Pending& pending = owners_[task.owner];
  if (error) pending.error = error;
  if (--pending.saves == 0 && !pending.error) owners_.erase(task.owner);
  --saves_, bytes_ -= task.bytes;
}

}  // namespace flux2
