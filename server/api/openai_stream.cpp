#include "server/api/openai_stream.h"

#include <algorithm>

#include "base/base64.h"
#include "base/start_thread.h"
#include "image/read_image.h"
#include "image/resize.h"
#include "image/write_image.h"
#include "server/api/waiting_client.h"
#include "server/jobs/preview_steps.h"

namespace flux2 {

namespace {

constexpr size_t kMostPending = 64;  // previews of any job while one is being submitted

}  // namespace

StreamPulse::~StreamPulse() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StreamPulse::add(const EventStream& stream, std::weak_ptr<void> alive) {
  const std::lock_guard lock(mutex_);
  streams_.emplace_back(stream, std::move(alive));
  if (!thread_.joinable()) thread_ = start_thread("the pulse of streams", [this] { beat(); });
}

void StreamPulse::beat() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, every_, [this] { return stopping_; }))
    std::erase_if(streams_, [](const auto& each) { return each.second.expired() || !each.first.comment("keep-alive"); });
}

std::string preview_as(const JobQueue::Preview& preview, const std::string& format, int longest_side) {
  const int longest = std::max(preview.width, preview.height);
  if (format == "jpeg" && preview.mime == "image/jpeg" && longest <= longest_side) return base64_of(preview.bytes);
  Image image = read_image(std::as_bytes(std::span(preview.bytes)));
  if (const int side = std::max(image.width, image.height); side > longest_side) {
    const auto scaled = [&](int n) { return std::max(1, static_cast<int>(int64_t{n} * longest_side / side)); };
    image = resize(image, scaled(image.width), scaled(image.height));
  }
  // A partial image is seen for a moment only, and the sampler waits for it.
  constexpr int kFastCompression = 1;
  return base64_encode(encode_image(image, format_from_name(format == "jpeg" ? "jpg" : format), {},
                                    {.quality = 90, .compression_level = kFastCompression}));
}

OpenAiStream::OpenAiStream(ApiContext& api, OpenAiAnswer answer, const OpenAiRequest& request)
    : api_(api),
      answer_(std::move(answer)),
      partial_images_(request.partial_images),
      preview_side_(request.preview_side),
      several_(request.native.value("count", int64_t{1}) > 1) {}

void OpenAiStream::listen() {
  if (partial_images_ == 0) return;
  listener_ = api_.queue.events().listen([self = weak_from_this()](const Event& event) {
    if (event.name != "preview") return;
    if (const auto stream = self.lock()) stream->on_event(event);
  });
}

void OpenAiStream::leave() {
  if (listener_ != 0) api_.queue.events().leave(std::exchange(listener_, 0));
}

void OpenAiStream::on_event(const Event& event) {
  const std::lock_guard lock(mutex_);
  if (finished_ || (!job_.empty() && event.job != job_)) return;
  auto preview = api_.queue.preview(event.job);
  if (!preview) return;
  const Json data = parse_json(event.data);
  Pending pending{event.job, data.value("step", 0), data.value("steps", 0), std::move(*preview)};
  if (!job_.empty()) send_partial(pending);
  else if (pending_.size() < kMostPending) pending_.push_back(std::move(pending));
}

void OpenAiStream::send_partial(const Pending& pending) {
  const auto steps = preview_steps(partial_images_, pending.steps);
  if (std::find(steps.begin(), steps.end(), pending.step) == steps.end()) return;
  if (width_ == 0) {  // the size that the image will have
    width_ = pending.preview.width, height_ = pending.preview.height;
    const auto job = api_.queue.store().get(job_);
    if (job && job->resolved.is_object()) {
      width_ = job->resolved.value("width", width_);
      height_ = job->resolved.value("height", height_);
    }
  }
  const std::string base64 = preview_as(pending.preview, answer_.output_format, preview_side_);
  const Json data = openai_partial_event(answer_, base64, sent_, pending.preview.index, several_, width_, height_);
  ++sent_;
  stream_->event(0, data["type"].get<std::string>(), data.dump());
}

void OpenAiStream::begin(const Job& job, const EventStream& stream) {
  {
    const std::lock_guard lock(mutex_);
    job_ = job.id;
    stream_ = stream;
    for (const Pending& pending : pending_)
      if (pending.job == job_) send_partial(pending);
    pending_.clear();
  }
  if (api_.cancel_on_disconnect)
    stream.on_closed([self = weak_from_this(), &queue = api_.queue, id = job.id] {
      const auto alive = self.lock();
      if (!alive) return;
      {
        const std::lock_guard lock(alive->mutex_);
        if (alive->finished_) return;
      }
      queue.cancel_soon(id);
    });
  // The queue keeps the stream alive until the job is final.
  api_.queue.when_finished(job.id, [self = shared_from_this()](const Job& final) { self->finish(final); });
}

void OpenAiStream::finish(const Job& job) {
  leave();
  {
    const std::lock_guard lock(mutex_);  // waits for a partial image that is being sent
    finished_ = true;
  }
  const auto fail_with = [&](const HttpError& error) { stream_->event(0, "error", openai_error_event(error).dump()); };
  try {
    if (job.state != "completed") throw error_of_job(job);
    for (const JobImage& image : job.images) {
      const Json data = openai_completed_event(answer_, job, image, api_.queue.assets());
      stream_->event(0, data["type"].get<std::string>(), data.dump());
    }
  } catch (...) {
    fail_with(http_error_of(std::current_exception()));
  }
  stream_->close();
}

}  // namespace flux2
