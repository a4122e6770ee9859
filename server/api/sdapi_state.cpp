#include "server/api/sdapi_state.h"

#include <algorithm>

#include "server/http/errors.h"

namespace flux2 {

void SdapiState::begin(const std::string& job) {
  const std::lock_guard lock(mutex_);
  jobs_.push_back(job);
  interrupted_ = false;
}

void SdapiState::end(const std::string& job) {
  const std::lock_guard lock(mutex_);
  std::erase(jobs_, job);
}

std::optional<Job> SdapiState::current() const {
  std::vector<std::string> ids;
  {
    const std::lock_guard lock(mutex_);
    ids = jobs_;
  }
  std::optional<Job> waiting;
  for (const std::string& id : ids) {
    auto job = queue_.store().get(id);
    if (!job || job->is_final()) continue;
    if (job->state != "queued") return job;
    if (!waiting) waiting = std::move(job);
  }
  return waiting;
}

void SdapiState::interrupt() {
  const auto job = current();
  if (!job) return;
  {
    const std::lock_guard lock(mutex_);
    interrupted_ = true;
  }
  queue_.cancel(job->id);
}

void SdapiState::skip() {
  const auto job = current();
  if (job && job->state == "running" && job->request.value("rounds", 1) > 1) queue_.skip(job->id);
  else interrupt();
}

bool SdapiState::interrupted() const {
  const std::lock_guard lock(mutex_);
  return interrupted_;
}

std::string SdapiState::model() const {
  const std::lock_guard lock(mutex_);
  return model_;
}

void SdapiState::choose_model(const std::string& name) {
  const std::lock_guard lock(mutex_);
  model_ = name;
}

Json SdapiState::options() const {
  const std::lock_guard lock(mutex_);
  return options_;
}

void SdapiState::set_options(const Json& options) {
  constexpr size_t kMostOptions = 1000;
  const std::lock_guard lock(mutex_);
  if (options_.size() + options.size() > kMostOptions) throw HttpError(422, "invalid_value", "Too many options.");
  for (const auto& [key, value] : options.items()) options_[key] = value;
}

}  // namespace flux2
