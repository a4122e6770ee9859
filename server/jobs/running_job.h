#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "app/picture_maker.h"
#include "app/picture_writer.h"
#include "app/prepare.h"
#include "app/step_preview.h"
#include "server/jobs/job_queue.h"

namespace flux2 {

// The file of an image, and what the user should know about it; empty: nothing.
struct EncodedImage {
  std::vector<std::byte> bytes;
  std::string warning;
};

// A finished image of a job that has to be encoded and stored. It needs nothing of the engine any more.
struct UnsavedImage {
  PictureWriter writer;
  Image image;
  Finish finish;
  GenerationRecord record;
  int index = 0;  // in the job

  int64_t bytes() const { return static_cast<int64_t>(image.pixels.size()); }
  uint64_t seed() const { return record.seed(); }
  EncodedImage encode() const;  // any thread may call it
};

// One job between its claim and its end: what it reports, stores and delivers. The worker decides what runs when. Its images are
// saved on the saver's thread, and previews are encoded on another; everything else happens on the worker's until it hands the
// job over to be completed.
class RunningJob {
 public:
  RunningJob(JobQueue& queue, Job job, const AppContext& context);

  const Job& job() const { return job_; }
  const AppContext& context() const { return context_; }  // whose warnings go to the job
  bool is_over() const { return over_; }

  // What the request became. Stores it with the job.
  void set_prepared(PreparedRun prepared);
  const PreparedRun& prepared() const { return prepared_; }

  // Progress of one of its requests.
  void tell(size_t request, Phase phase, int step, int steps);
  // What a language model has written so far, of at most `most` tokens. An empty text is not shown to anybody.
  void tell_text(std::string_view text, int64_t tokens, int64_t most);
  void set_text(Json members) { made_ = std::move(members); }  // the result of a job that makes a text
  bool wants_preview(const StepDone& step) const;
  // Publishes a preview of image `index` after `step` of `steps`. On the thread for previews, before the job ends.
  void preview(const SmallPreview& preview, int index, int step, int steps);
  int next_index() const { return index_; }  // of the image that is being made
  UnsavedImage take(const ResolvedRequest& resolved, const Picture& picture, GenerationRecord record);
  void save(const UnsavedImage& image, std::shared_future<EncodedImage> encoded);  // on the saver's thread
  void count_usage(const Models& models);

  bool cancel_requested();  // asks the store now and then: JobQueue::cancel_poll()

  // Whether the current round is to end and the next one to begin: JobQueue::skip().
  bool skip_requested() const { return queue_.skip_noted(job_.id); }
  bool take_skip() { return queue_.take_skip(job_.id); }

  void forget_request() { prepared_ = {}; }  // which is large; nothing runs any more
  void complete(const PhaseTimes& times, int64_t peak_bytes);
  void fail(const std::exception_ptr& thrown, bool deadline_passed = false);  // or cancels it, if that was asked for
  void give_back();                                                           // to the queue, at shutdown

 private:
  using Clock = std::chrono::steady_clock;

  void finish();
  void publish_progress(Clock::time_point now);
  void check_lease(bool held);

  JobQueue& queue_;
  Job job_;
  AppContext context_;
  PreparedRun prepared_;
  Json warnings_ = Json::array(), usage_ = Json::object(), made_ = Json::object();
  PhaseTimes times_;
  Clock::time_point started_ = Clock::now(), told_ = {}, stored_ = Clock::now(), asked_ = {};
  Phase last_phase_ = Phase::Save;
  double save_seconds_ = 0;
  int64_t peak_ = 0;
  int index_ = 0;  // of the next image
  bool cancel_ = false;
  std::vector<JobImage> saved_;  // these two and save_seconds_ are of the saver's thread until it is drained
  std::vector<std::string> image_warnings_;
  std::atomic<bool> over_ = false;
};

}  // namespace flux2
