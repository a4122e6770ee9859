#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/api/api_context.h"
#include "server/api/openai_answer.h"
#include "server/http/exchange.h"

namespace flux2 {

// Sends a comment to every stream that waits, so that no proxy closes it. One thread for all streams, started with the first.
class StreamPulse {
 public:
  explicit StreamPulse(std::chrono::milliseconds every = std::chrono::seconds(10)) : every_(every) {}
  ~StreamPulse();

  void add(const EventStream& stream, std::weak_ptr<void> alive);  // until `alive` is gone or the stream is closed

 private:
  void beat();

  std::chrono::milliseconds every_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::pair<EventStream, std::weak_ptr<void>>> streams_;
  bool stopping_ = false;
  std::jthread thread_;
};

// Turns the previews and the end of one job into the events of this family. Listening begins before the job is submitted, since a
// small model may be done with a step before submit() returns.
class OpenAiStream : public std::enable_shared_from_this<OpenAiStream> {
 public:
  OpenAiStream(ApiContext& api, OpenAiAnswer answer, const OpenAiRequest& request);
  ~OpenAiStream() { leave(); }

  void listen();  // to previews, if partial images are wanted
  // From here on events go to the client. What happened before is sent first.
  void begin(const Job& job, const EventStream& stream);

 private:
  struct Pending {
    std::string job;
    int step = 0, steps = 0;
    JobQueue::Preview preview;
  };

  void on_event(const Event& event);
  void send_partial(const Pending& pending);  // with the lock held
  void finish(const Job& job);
  void leave();

  ApiContext& api_;
  OpenAiAnswer answer_;
  int partial_images_, preview_side_;
  bool several_;
  std::mutex mutex_;
  int64_t listener_ = 0;
  std::string job_;
  std::optional<EventStream> stream_;
  std::vector<Pending> pending_;
  int sent_ = 0;
  int width_ = 0, height_ = 0;
  bool finished_ = false;
};

// A preview in the format and at most the size that the client asked for, as base64.
std::string preview_as(const JobQueue::Preview& preview, const std::string& format, int longest_side);

}  // namespace flux2
