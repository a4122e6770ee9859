#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

#include "app/picture_maker.h"
#include "app/prepare.h"
#include "server/jobs/job_queue.h"

namespace flux2 {

// One job between its claim and its end: what it reports, stores and delivers. The worker decides what runs when.
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
  void preview(const Image& image, const StepDone& step);
  void deliver(const ResolvedRequest& resolved, const Picture& picture, GenerationRecord record);
  void count_usage(const Models& models);

  bool cancel_requested();  // asks the store now and then: JobQueue::cancel_poll()

  void complete(const PhaseTimes& times, int64_t peak_bytes);
  void fail(std::exception_ptr thrown, bool deadline_passed = false);  // or cancels it, if that was asked for
  void give_back();                                                    // to the queue, at shutdown

 private:
  using Clock = std::chrono::steady_clock;

  void finish();
  void check_lease(bool held);

  JobQueue& queue_;
  Job job_;
  AppContext context_;
  PreparedRun prepared_;
  Json warnings_ = Json::array(), usage_ = Json::object();
  PhaseTimes times_;
  Clock::time_point started_ = Clock::now(), told_ = {}, stored_ = Clock::now(), asked_ = {};
  Phase last_phase_ = Phase::Save;
  double save_seconds_ = 0;
  int64_t peak_ = 0;
  int index_ = 0;  // of the next image
  bool cancel_ = false, over_ = false;
};

}  // namespace flux2
