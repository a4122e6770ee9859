#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace flux2 {

// Saves finished images, or shows previews, on a thread of its own, in order, while the engine goes on. What is saved belongs to
// an owner: a job. The calls are made by one thread, the worker's.
class Saver {
 public:
  struct Limits {
    size_t saves = 32;                   // two merged batches of small images
    int64_t bytes = int64_t{256} << 20;  // of images that wait or are being saved
  };
  using Owner = const void*;
  // Gets the first error of the owner's saves, or null.
  using End = std::function<void(std::exception_ptr)>;

  Saver() : Saver(Limits{}) {}
  explicit Saver(Limits limits, const char* what = "saving images");  // what its thread is for
  ~Saver();                                                           // after everything was saved
  Saver(const Saver&) = delete;
  Saver& operator=(const Saver&) = delete;

  // Runs `save` on the saver's thread after everything that was added before. While the backlog is full, the caller waits. After
  // a save of the owner has failed, its later ones are skipped.
  void add(Owner owner, int64_t bytes, std::function<void()> save);
  // Runs `end` after the owner's saves. `end` must not throw. The owner may then be destroyed.
  void finish(Owner owner, End end);

  bool has_failed(Owner owner) const;
  // Waits for the owner's saves. Returns their first error, or null, and forgets it.
  std::exception_ptr drain(Owner owner);
  void drain();  // waits for everything

 private:
  struct Task {
    Owner owner = nullptr;
    int64_t bytes = 0;
    std::function<void()> save;
    End end;
  };
  struct Pending {
    size_t saves = 0;
    std::exception_ptr error;
  };

  void run();
  void perform(Task& task, std::unique_lock<std::mutex>& lock);

  Limits limits_;
  mutable std::mutex mutex_;
  std::condition_variable added_, done_;
  std::deque<Task> tasks_;           // the first one is being done
  std::map<Owner, Pending> owners_;  // with saves that wait, or an error that nobody has asked for
  int64_t bytes_ = 0;
  size_t saves_ = 0;
  bool stopping_ = false;
  std::jthread thread_;
};

}  // namespace flux2
