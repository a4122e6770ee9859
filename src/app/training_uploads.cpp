#include "app/training_uploads.h"

#include <fmt/format.h>

#include <utility>

namespace flux2 {

std::unique_ptr<TrainingUploads> TrainingUploads::create(const TrainOptions& options, const AppContext& context) {
  if (options.huggingface_repo_id.empty()) return nullptr;
  HubSettings hub = hub_settings(context.environment, options.huggingface_token);
  const char* obstacle = hub.offline                ? "HF_HUB_OFFLINE is set"
                         : !HttpClient::available() ? "this build has no HTTP client"
                         : hub.token.empty()        ? "no token is set; use huggingface_token or HF_TOKEN"
                                                    : nullptr;
  if (obstacle != nullptr) {
    context.log.warn("nothing is uploaded to {}: {}", options.huggingface_repo_id, obstacle);
    return nullptr;
  }
  return std::make_unique<TrainingUploads>(options, std::move(hub), context.log);
}

TrainingUploads::TrainingUploads(const TrainOptions& options, HubSettings hub, Log log)
    : output_dir_(options.output_dir),
      states_(options.save_state_to_huggingface),
      log_(std::move(log)),
      client_(hub.http),
      queue_(new_upload(options, std::move(hub)), options.async_upload, Log([this](LogLevel level, const std::string& text) {
               if (level != LogLevel::Warning) return;
               const std::lock_guard lock(mutex_);
               warnings_.push_back(text);
             })) {}

TrainingUploads::~TrainingUploads() { given_up_ = true; }

HubUpload TrainingUploads::new_upload(const TrainOptions& options, HubSettings hub) {
  return {{.hub = std::move(hub),
           .repository = options.huggingface_repo_id,
           .type = options.huggingface_repo_type,
           .is_public = options.huggingface_repo_visibility == "public",
           .folder = options.huggingface_path_in_repo},
          [this](const HttpRequest& request) { return client_.send(request); },
          {.cancelled = [this] { return given_up_.load(); }}};
}

void TrainingUploads::at(const Json& event) {
  const std::string kind = event.value("event", "");
  std::string path;  // from the output folder
  if (kind == "checkpoint") path = event.value("file", "");
  if (kind == "state" && states_) path = event.value("folder", "");
  if (!path.empty()) {
    const std::filesystem::path file = output_dir_ / path;
    queue_.add(file, fmt::format("{}: step {}", file.filename().string(), event.value("step", int64_t{0})));
  }
  pass_on_warnings();
}

void TrainingUploads::finish() {
  queue_.finish();
  pass_on_warnings();
}

void TrainingUploads::pass_on_warnings() {
  std::vector<std::string> texts;
  {
    const std::lock_guard lock(mutex_);
    texts.swap(warnings_);
  }
  for (const std::string& text : texts) log_.warn("{}", text);
}

}  // namespace flux2
