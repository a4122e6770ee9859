#pragma once

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <mutex>
#include <string>
#include <thread>

#include "base/log.h"
#include "train/log/hub_upload.h"

namespace flux2 {

// Uploads what training saves. A failure is a warning: it never stops training.
class UploadQueue {
 public:
  UploadQueue(HubUpload upload, bool in_background, Log log);
  ~UploadQueue();  // waits for what is under way; what has not begun is dropped

  void add(const std::filesystem::path& file_or_folder, const std::string& summary);
  void finish();  // waits until everything is uploaded

 private:
  struct Job {
    std::filesystem::path path;
    std::string summary;
  };
  void run(const std::stop_token& stop);
  void upload_now(const Job& job);

  HubUpload upload_;
  Log log_;
  bool created_ = false;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Job> jobs_;  // the first one is under way
  std::jthread thread_;   // not joinable: add() uploads
};

}  // namespace flux2
