#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "app/context.h"
#include "base/json.h"
#include "net/http.h"
#include "train/log/upload_queue.h"
#include "train/train_options.h"

namespace flux2 {

// Uploads the adapters and states of a run to a hub, where the options ask for it. A failure is a warning. One thread, that of
// the run, uses it; messages from uploads in the background wait for that thread.
class TrainingUploads {
 public:
  // Null if nothing is to be uploaded.
  static std::unique_ptr<TrainingUploads> create(const TrainOptions& options, const AppContext& context);

  TrainingUploads(const TrainOptions& options, HubSettings hub, Log log);
  ~TrainingUploads();  // gives up what is not uploaded

  void at(const Json& event);  // each event of the run (train/log/run_log.h)
  void finish();               // waits until everything is uploaded

 private:
  HubUpload new_upload(const TrainOptions& options, HubSettings hub);
  void pass_on_warnings();

  std::filesystem::path output_dir_;
  bool states_;
  Log log_;
  HttpClient client_;
  std::atomic<bool> given_up_ = false;
  std::mutex mutex_;
  std::vector<std::string> warnings_;  // that the user has not seen
  UploadQueue queue_;                  // last: its thread uses the others
};

}  // namespace flux2
