#include <charconv>
#include <span>
#include <vector>

#include "base/base64.h"
#include "record/generation_record.h"
#include "server/api/native.h"
#include "server/http/errors.h"
#include "server/store/ids.h"

namespace flux2 {

namespace {

std::string dumped(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

bool ends_a_job(const Event& event) {
  return event.name == "job.completed" || event.name == "job.failed" || event.name == "job.cancelled";
}

// One client that listens. Events that happen while the stored ones are replayed wait until that is done, so that none is sent
// twice or out of order.
class Listening : public std::enable_shared_from_this<Listening> {
 public:
  // A client that follows one job, or wants previews in its events, gets each event at once; others get batches.
  Listening(EventStream stream, ApiContext& api, std::string job, bool inline_previews)
      : stream_(std::move(stream)), api_(api), job_(std::move(job)), inline_previews_(inline_previews) {}

  // If the store fails, nothing would ever be sent: the stream is closed, and the client comes back.
  void begin(std::optional<int64_t> last_seen) {
    try {
      open(last_seen);
    } catch (...) {
      end();
      stream_.close();
      throw;
    }
  }

 private:
  using Batch = std::shared_ptr<const EventBatch>;

  void open(std::optional<int64_t> last_seen) {
    JobStore& store = api_.queue.store();
    Events& events = api_.queue.events();
    if (in_batches()) handle_ = events.batches().listen([self = shared_from_this()](const auto& batch) { self->take(batch); });
    else handle_ = events.listen([self = shared_from_this()](const Event& event) { self->take(alone(event)); }, job_);
    stream_.on_closed([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->end();
    });
    const int64_t last = store.last_event();
    stream_.event(0, "hello", dumped({{"server_time", rfc3339(now_ms())}, {"version", program_version()}, {"last_id", last}}));
    if (last_seen) replay(*last_seen);
    else sent_ = last;
    if (!job_.empty()) tell_state();
    const std::lock_guard lock(mutex_);
    replaying_ = false;
    for (const Batch& batch : waiting_) pass_on(batch);
    waiting_ = {};
  }

  bool in_batches() const { return job_.empty() && !inline_previews_; }

  static Batch alone(const Event& event) {
    return std::make_shared<const EventBatch>(
        EventBatch{.events = {event}, .text = nullptr, .first_id = event.id, .last_id = event.id});
  }

  void replay(int64_t last_seen) {
    JobStore& store = api_.queue.store();
    const int64_t first = store.first_event();
    if (first > 0 && last_seen + 1 < first) {
      stream_.event(0, "reset", "{}");
      sent_ = store.last_event();
      return;
    }
    for (const StoredEvent& event : store.events_after(last_seen)) {
      sent_ = event.id;
      if (job_.empty() || event.data.find("job_" + job_) != std::string::npos) stream_.event(event.id, event.name, event.data);
    }
  }

  // A client that follows one job learns at once how it stands.
  void tell_state() {
    const auto job = api_.queue.store().get(job_);
    if (!job) return;
    stream_.event(0, "job.updated", dumped(job_to_json(*job, api_.queue.store(), false)));
    if (job->is_final()) stream_.close();
  }

  void take(const Batch& batch) {
    const std::lock_guard lock(mutex_);
    if (ended_) return;
    if (replaying_) waiting_.push_back(batch);
    else pass_on(batch);
  }

  void pass_on(const Batch& batch) {
    if (batch->text && (batch->first_id == 0 || batch->first_id > sent_)) {
      sent_ = std::max(sent_, batch->last_id);
      stream_.send(batch->text);
      return;
    }
    for (const Event& event : batch->events) pass_on(event);
  }

  void pass_on(const Event& event) {
    if (event.name == kKeepAlive) {
      stream_.comment(kKeepAlive);
      return;
    }
    if (event.id != 0 && event.id <= sent_) return;
    if (event.id != 0) sent_ = event.id;
    const auto keep = event.may_drop ? EventStream::Keep::IfRoom : EventStream::Keep::Always;
    if (event.name == "preview" && inline_previews_) {
      Json data = Json::parse(event.data);
      if (const auto preview = api_.queue.preview(event.job))
        data["b64"] = base64_encode(std::as_bytes(std::span(preview->bytes)));
      stream_.event(event.id, event.name, data.dump(), keep);
      return;
    }
    stream_.event(event.id, event.name, event.data, keep);
    if (!job_.empty() && ends_a_job(event)) stream_.close();
  }

  void end() {
    if (in_batches()) api_.queue.events().batches().leave(handle_);
    else api_.queue.events().leave(handle_);
    const std::lock_guard lock(mutex_);
    ended_ = true;
    waiting_ = {};
  }

  EventStream stream_;
  ApiContext& api_;
  std::string job_;
  bool inline_previews_;
  std::mutex mutex_;
  bool replaying_ = true, ended_ = false;
  std::vector<Batch> waiting_;
  int64_t sent_ = 0, handle_ = 0;
};

void listen(const Exchange& exchange, ApiContext& api, const std::string& job) {
  const ServerRequest& request = exchange.request();
  std::optional<int64_t> last_seen;
  // Browsers send the header when they come back; the argument is for the first connection of a page that was reloaded.
  const std::string text(!request.header("last-event-id").empty() ? std::string(request.header("last-event-id"))
                                                                  : request.argument("last_event_id").value_or(""));
  if (!text.empty()) {
    int64_t value = 0;
    const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failure != std::errc() || end != text.data() + text.size() || value < 0)
      throw HttpError(400, "invalid_request", "Last-Event-ID must be the number of an event", "last_event_id");
    last_seen = value;
  }
  const bool inline_previews = request.argument("previews").value_or("") == "inline";
  std::make_shared<Listening>(exchange.stream(), api, job, inline_previews)->begin(last_seen);
}

}  // namespace

void add_event_routes(Router& router, ApiContext& api) {
  router.add({.method = "GET",
              .pattern = "/api/v1/events",
              .handler = [&api](const Exchange& exchange) { listen(exchange, api, ""); },
              .scope = Scope::Generate,
              .summary = "everything that happens, as server-sent events"});
  router.add({.method = "GET",
              .pattern = "/api/v1/jobs/{id}/events",
              .handler = [&api](const Exchange& exchange) { listen(exchange, api, job_of(exchange.request(), api).id); },
              .scope = Scope::Generate,
              .summary = "what happens to one job, as server-sent events"});
}

}  // namespace flux2
