#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <functional>
#include <mutex>
#include <thread>

#include "app/network_upscaler.h"

namespace flux2 {

// Enlarges images with networks for clients that wait, one image at a time on a thread of its own. The network that was used last
// stays loaded.
class UpscaleService {
 public:
  explicit UpscaleService(EngineOptions options, size_t most_waiting = 16);
  ~UpscaleService();  // stops what runs; what waits is not run

  // Runs the work on that thread. Returns false if too much waits already.
  bool submit(std::function<void()> work);
  void wait();  // until all work is done

  // The image enlarged by the scale of the network. Only for work. Throws Cancelled when `gone` says so or the service ends.
  Image enlarge(const std::filesystem::path& upscaler, const Image& image, const std::function<bool()>& gone);

 private:
  void run();

  const EngineOptions options_;
  const size_t most_waiting_;
  std::unique_ptr<NetworkUpscaler> loaded_;
  std::filesystem::path loaded_file_;
  std::filesystem::file_time_type loaded_time_;

  std::atomic<bool> stopping_ = false;
  std::mutex mutex_;
  std::condition_variable news_, idle_;
  std::deque<std::function<void()>> waiting_;
  bool running_ = false;
  std::jthread thread_;
};

}  // namespace flux2
