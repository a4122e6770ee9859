#include "server/jobs/job_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/error.h"
#include "server/http/errors.h"
#include "server/store/ids.h"
#include "server/store/sql_store.h"
#include "server/store/sqlite_sql.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

using std::chrono::milliseconds;

class JobQueueTest : public ::testing::Test {
 protected:
  JobQueueTest() {
    events_.listen([this](const Event& event) {
      const std::lock_guard lock(heard_mutex_);
      heard_.push_back(event);
    });
  }

  Job submitted(const std::string& prompt = "a fox") { return queue_.submit({.request = {{"prompt", prompt}}}).job; }

  // What a worker does.
  Job run_next(const std::string& state = "completed") {
    Job job = *store_->claim("gpu", "w", "", now_ms());
    job.state = state;
    EXPECT_TRUE(store_->finish(job));
    queue_.finished(job);
    return job;
  }

  std::vector<std::string> names() {
    const std::lock_guard lock(heard_mutex_);
    std::vector<std::string> names;
    for (const Event& event : heard_) names.push_back(event.name);
    return names;
  }

  Json data_of(const std::string& name) {  // of the last event of that name
    const std::lock_guard lock(heard_mutex_);
    for (auto event = heard_.rbegin(); event != heard_.rend(); ++event)
      if (event->name == name) return Json::parse(event->data);
    return nullptr;
  }

  template <class F>
  static HttpError refusal_of(F&& f) {
    try {
      f();
    } catch (const HttpError& e) {
      return e;
    }
    return HttpError(0, "", "nothing was thrown");
  }

  std::filesystem::path folder_ = server_test_folder();
  std::unique_ptr<JobStore> store_ = open_sqlite_store(folder_ / "flux2.db");
  AssetStore assets_{folder_};
  Events events_{*store_};
  JobQueue queue_{*store_, assets_, events_, 3};
  std::mutex heard_mutex_;
  std::vector<Event> heard_;
};

using Names = std::vector<std::string>;

TEST_F(JobQueueTest, SubmitStoresTheJobAndTellsListeners) {
  const auto inserted = queue_.submit({.request = {{"prompt", "a fox"}},
                                       .kind = "edit",
                                       .client_ref = "c",
                                       .project = "P",
                                       .priority = 2,
                                       .model_key = "m",
                                       .merge_key = "k"});
  EXPECT_FALSE(inserted.existed);
  const auto job = store_->get(inserted.job.id);
  ASSERT_TRUE(job);
  EXPECT_EQ(job->kind, "edit");
  EXPECT_EQ(job->priority, 2);
  EXPECT_EQ(job->project, "P");
  EXPECT_EQ(job->model_key, "m");
  EXPECT_EQ(job->merge_key, "k");
  EXPECT_EQ(job->request_hash.size(), 64u);
  EXPECT_EQ(names(), (Names{"job.queued", "queue"}));
  EXPECT_EQ(data_of("job.queued")["id"], "job_" + job->id);
  EXPECT_EQ(data_of("job.queued")["queue_position"], 1);
  EXPECT_FALSE(data_of("job.queued").contains("request"));
  EXPECT_EQ(data_of("queue"), (Json{{"running", 0}, {"queued", 1}, {"paused", false}}));
}

TEST_F(JobQueueTest, RefusesWhenTheQueueIsFull) {
  for (int i = 0; i < 3; ++i) submitted();
  const HttpError error = refusal_of([&] { submitted(); });
  EXPECT_EQ(error.status, 429);
  EXPECT_EQ(error.code, "queue_full");
  ASSERT_EQ(error.headers.size(), 1u);
  EXPECT_EQ(error.headers[0].first, "retry-after");
  EXPECT_GT(std::stoi(error.headers[0].second), 0);
  EXPECT_FALSE(error.hint.empty());
}

TEST_F(JobQueueTest, AnIdempotencyKeyGivesTheFirstJob) {
  const Json body = {{"prompt", "a fox"}, {"steps", 4}}, reordered = {{"steps", 4}, {"prompt", "a fox"}};
  const auto first = queue_.submit({.request = body, .idempotency_key = "k"});
  const auto second = queue_.submit({.request = reordered, .idempotency_key = "k"});
  EXPECT_TRUE(second.existed);
  EXPECT_EQ(second.job.id, first.job.id);
  EXPECT_EQ(names(), (Names{"job.queued", "queue"})) << "nothing new happened";
  const HttpError error = refusal_of([&] { queue_.submit({.request = {{"prompt", "a cat"}}, .idempotency_key = "k"}); });
  EXPECT_EQ(error.status, 409);
  EXPECT_EQ(error.code, "idempotency_key_reused");
  EXPECT_EQ(refusal_of([&] { queue_.submit({.request = body, .kind = "edit", .idempotency_key = "k"}); }).status, 409);
}

TEST_F(JobQueueTest, AnIdempotencyKeyComparesWhatWasSent) {
  const auto first = queue_.submit({.request = {{"seed", 1}}, .idempotency_key = "k", .sent = "{\"seed\":-1}"});
  const auto second = queue_.submit({.request = {{"seed", 2}}, .idempotency_key = "k", .sent = "{\"seed\":-1}"});
  EXPECT_EQ(second.job.id, first.job.id) << "the seeds were drawn, the requests are the same";
  EXPECT_EQ(second.job.request["seed"], 1);
}

TEST_F(JobQueueTest, FinishedTellsListenersAndThoseWhoWait) {
  const Job job = submitted();
  int calls = 0;
  queue_.when_finished(job.id, [&](const Job& final) {
    ++calls;
    EXPECT_EQ(final.id, job.id);
    EXPECT_EQ(final.state, "failed");
  });
  queue_.when_finished(job.id, [&](const Job&) { throw std::runtime_error("this one fails"); });
  queue_.when_finished(job.id, [&](const Job&) { ++calls; });
  EXPECT_EQ(calls, 0);
  queue_.set_preview(job.id, {.bytes = "x", .mime = "image/jpeg", .step = 2});
  EXPECT_EQ(queue_.preview(job.id)->step, 2);

  Job held = *store_->claim("gpu", "w", "", now_ms());
  queue_.started(held);
  EXPECT_EQ(data_of("queue")["running"], 1);
  held.state = "failed";
  held.error = {{"code", "out_of_memory"}, {"message", "m"}, {"hint", "h"}};
  held.images = {{.index = 0, .asset = "A"}};
  store_->finish(held);
  queue_.finished(held);
  EXPECT_EQ(calls, 2);
  EXPECT_FALSE(queue_.preview(job.id));
  EXPECT_EQ(names(), (Names{"job.queued", "queue", "job.started", "queue", "job.failed", "queue"}));
  EXPECT_EQ(data_of("job.failed"), (Json{{"job_id", "job_" + job.id},
                                         {"type", "image"},
                                         {"asset_ids", {"ast_A"}},
                                         {"url", "/api/v1/jobs/job_" + job.id + "/images/0"},
                                         {"thumbnail_url", "/api/v1/jobs/job_" + job.id + "/images/0?thumb=1"},
                                         {"error", held.error}}));
  queue_.finished(held);
  EXPECT_EQ(calls, 2) << "nobody is called twice";
}

TEST_F(JobQueueTest, WhoComesTooLateIsCalledAtOnce) {
  const Job job = submitted();
  run_next();
  int calls = 0;
  queue_.when_finished(job.id, [&](const Job& final) {
    ++calls;
    EXPECT_EQ(final.state, "completed");
  });
  EXPECT_EQ(calls, 1);
  try {
    queue_.when_finished(new_id(), [&](const Job&) { ++calls; });
    FAIL() << "there is no such job";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::NotFound);
  }
  EXPECT_EQ(calls, 1);
}

// Four threads ask while the job ends: each is called exactly once.
TEST_F(JobQueueTest, NoCallIsLostOrMadeTwiceInARace) {
  for (int round = 0; round < 30; ++round) {
    const Job job = submitted();
    std::vector<std::atomic<int>> calls(40);
    std::atomic<bool> go = false;
    {
      std::vector<std::jthread> threads;
      for (size_t t = 0; t < 4; ++t)
        threads.emplace_back([&, t] {
          while (!go) std::this_thread::yield();
          for (size_t i = 0; i < 10; ++i) queue_.when_finished(job.id, [&, n = 10 * t + i](const Job&) { ++calls[n]; });
        });
      threads.emplace_back([&] {
        while (!go) std::this_thread::yield();
        run_next();
      });
      go = true;
    }
    for (const auto& n : calls) ASSERT_EQ(n, 1) << "round " << round;
  }
}

TEST_F(JobQueueTest, CheckWaitingFindsWhatAnotherProcessFinished) {
  const Job job = submitted(), other = submitted();
  int calls = 0;
  queue_.when_finished(job.id, [&](const Job&) { ++calls; });
  queue_.when_finished(other.id, [&](const Job&) { ++calls; });
  queue_.check_waiting();
  EXPECT_EQ(calls, 0);
  Job held = *store_->claim("gpu", "elsewhere", "", now_ms());
  held.state = "completed";
  store_->finish(held);
  queue_.check_waiting();
  queue_.check_waiting();
  EXPECT_EQ(calls, 1);
}

TEST_F(JobQueueTest, CancelEndsAWaitingJobAndReportsItOnce) {
  const Job job = submitted();
  int calls = 0;
  queue_.when_finished(job.id, [&](const Job& final) {
    ++calls;
    EXPECT_EQ(final.state, "cancelled");
  });
  {
    std::vector<std::jthread> threads;
    threads.reserve(4);
    for (int t = 0; t < 4; ++t) threads.emplace_back([&] { EXPECT_EQ(queue_.cancel(job.id)->state, "cancelled"); });
  }
  EXPECT_EQ(calls, 1);
  const Names heard = names();
  EXPECT_EQ(std::count(heard.begin(), heard.end(), "job.cancelled"), 1);
  EXPECT_FALSE(queue_.cancel(new_id()));
}

TEST_F(JobQueueTest, CancelSoonIsTriedUntilTheStoreCan) {
  const auto database = open_sqlite(folder_ / "flux2.db");
  const auto run = [&](const char* text) { database->writing([&](SqlConnection& sql) { sql.run(text); }); };
  run("CREATE TRIGGER full BEFORE UPDATE ON jobs BEGIN SELECT RAISE(ABORT, 'disk full'); END");
  const Job job = submitted();
  queue_.cancel_soon(job.id);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(store_->get(job.id)->state, "queued");
  run("DROP TRIGGER full");
  for (int i = 0; i < 1000 && !store_->get(job.id)->is_final(); ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(store_->get(job.id)->state, "cancelled");
  const Job last = submitted();
  queue_.cancel_soon(last.id);
  queue_.stop();
  EXPECT_EQ(store_->get(last.id)->state, "cancelled") << "the end waits for it";
}

// A job that the store cannot cancel goes behind the others.
TEST_F(JobQueueTest, ACancelThatFailsHoldsUpNoOther) {
  const auto database = open_sqlite(folder_ / "flux2.db");
  const auto run = [&](const std::string& text) { database->writing([&](SqlConnection& sql) { sql.run(text); }); };
  const Job stuck = submitted(), second = submitted(), third = submitted();
  run("CREATE TRIGGER stuck BEFORE UPDATE ON jobs WHEN OLD.id = '" + stuck.id + "' BEGIN SELECT RAISE(ABORT, 'disk full'); END");
  const auto is_cancelled = [&](const Job& job) { return store_->get(job.id)->state == "cancelled"; };
  queue_.cancel_soon(stuck.id);
  queue_.cancel_soon(second.id);
  for (int i = 0; i < 1000 && !is_cancelled(second); ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_TRUE(is_cancelled(second));
  EXPECT_FALSE(is_cancelled(stuck));
  // At the end, too, each is tried once.
  queue_.cancel_soon(third.id);
  queue_.stop();
  EXPECT_TRUE(is_cancelled(third));
  EXPECT_FALSE(is_cancelled(stuck));
}

TEST_F(JobQueueTest, CancelAsksARunningJobToStop) {
  const Job job = submitted();
  store_->claim("gpu", "w", "", now_ms());
  EXPECT_EQ(queue_.cancel(job.id)->state, "cancelling");
  EXPECT_EQ(queue_.cancel(job.id)->state, "cancelling");
  EXPECT_EQ(data_of("job.updated")["state"], "cancelling");
  EXPECT_EQ(names(), (Names{"job.queued", "queue", "job.updated"}));
}

// At shutdown, say, while another process asks for the end of the job.
TEST_F(JobQueueTest, AJobThatIsGivenBackIsQueuedOrCancelled) {
  const Job job = submitted();
  int calls = 0;
  queue_.when_finished(job.id, [&](const Job& final) { calls += final.state == "cancelled"; });
  store_->claim("gpu", "w", "", now_ms());
  EXPECT_FALSE(queue_.give_back(job.id, "another"));
  EXPECT_TRUE(queue_.give_back(job.id, "w"));
  EXPECT_EQ(store_->get(job.id)->state, "queued");
  EXPECT_EQ(calls, 0);

  store_->claim("gpu", "w", "", now_ms());
  store_->cancel(job.id, now_ms());
  EXPECT_TRUE(queue_.give_back(job.id, "w"));
  EXPECT_EQ(store_->get(job.id)->state, "cancelled");
  EXPECT_EQ(calls, 1);
  const Names heard = names();
  EXPECT_EQ(std::count(heard.begin(), heard.end(), "job.cancelled"), 1);
}

TEST_F(JobQueueTest, TheEndOfAJobSaysWhatItMade) {
  const auto type_of = [&](const std::string& kind, const std::string& lane) {
    queue_.submit({.request = {{"n", 1}}, .kind = kind, .lane = lane});
    Job job = *store_->claim(lane, "w", "", now_ms());
    job.state = "completed";
    store_->finish(job);
    queue_.finished(job);
    return data_of("job.completed")["type"];
  };
  for (const char* kind : {"generate", "edit", "shot", "element_visual"}) EXPECT_EQ(type_of(kind, "gpu"), "image") << kind;
  for (const char* kind : {"rewrite", "describe"}) EXPECT_EQ(type_of(kind, "gpu"), "text") << kind;
  EXPECT_EQ(type_of("train", "gpu"), "train");
  EXPECT_EQ(type_of("download", "net"), "download");
  for (const char* kind : {"verify", "convert"}) EXPECT_EQ(type_of(kind, "cpu"), kind);
}

TEST_F(JobQueueTest, RetryMakesANewJobWithTheSameRequest) {
  const Job job = queue_.submit({.request = {{"seed", 42}}, .kind = "edit", .idempotency_key = "k", .client_ref = "c"}).job;
  EXPECT_EQ(refusal_of([&] { queue_.retry(job.id); }).code, "job_not_finished");
  EXPECT_EQ(refusal_of([&] { queue_.retry(new_id()); }).status, 404);
  run_next("failed");
  const Job again = queue_.retry(job.id);
  EXPECT_NE(again.id, job.id);
  EXPECT_EQ(again.state, "queued");
  EXPECT_EQ(again.retry_of, job.id);
  EXPECT_EQ(again.request, job.request);
  EXPECT_EQ(again.kind, "edit");
  EXPECT_EQ(again.client_ref, "c");
  EXPECT_EQ(again.resolved["attempt"], 2);
  run_next("failed");
  EXPECT_EQ(queue_.retry(again.id).resolved["attempt"], 3);
}

TEST_F(JobQueueTest, WaitForWorkMissesNoSubmission) {
  using Clock = std::chrono::steady_clock;
  const auto waited = [&](std::optional<uint64_t> seen = {}) {
    const auto start = Clock::now();
    queue_.wait_for_work(milliseconds(60'000), seen);
    return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
  };
  submitted();  // before the first wait
  EXPECT_LT(waited(), milliseconds(30'000));
  const uint64_t seen = queue_.submissions();
  submitted();
  EXPECT_LT(waited(), milliseconds(30'000));
  EXPECT_LT(waited(seen), milliseconds(30'000)) << "another thread has waited meanwhile";

  std::jthread later([&] {
    std::this_thread::sleep_for(milliseconds(50));
    queue_.wake();
  });
  EXPECT_LT(waited(), milliseconds(30'000));
  const auto start = Clock::now();
  later.join();
  queue_.wait_for_work(milliseconds(30), queue_.submissions());
  EXPECT_GE(Clock::now() - start, milliseconds(25)) << "nothing happened";
}

TEST_F(JobQueueTest, ServesManyThreads) {
  JobQueue queue(*store_, assets_, events_, 1000);
  std::atomic<int> called = 0;
  std::atomic<bool> stop = false;
  {
    std::vector<std::jthread> workers, clients;
    for (int w = 0; w < 2; ++w)
      workers.emplace_back([&, name = "w" + std::to_string(w)] {
        while (!stop) {
          const uint64_t seen = queue.submissions();
          auto job = store_->claim("gpu", name, "", now_ms());
          if (!job) {
            queue.wait_for_work(milliseconds(100), seen);
            continue;
          }
          queue.set_preview(job->id, {.bytes = "x"});
          job->state = store_->cancel_requested(job->id) ? "cancelled" : "completed";
          if (store_->finish(*job)) queue.finished(*job);
        }
      });
    for (int c = 0; c < 3; ++c)
      clients.emplace_back([&] {
        for (int i = 0; i < 20; ++i) {
          const Job job = queue.submit({.request = {{"n", i}}}).job;
          queue.when_finished(job.id, [&](const Job& final) {
            EXPECT_TRUE(final.is_final());
            ++called;
          });
          if (i % 4 == 0) queue.cancel(job.id);
          queue.preview(job.id);
        }
      });
    clients.clear();
    for (int i = 0; i < 1000 && called < 60; ++i) std::this_thread::sleep_for(milliseconds(10));
    stop = true;
    queue.wake();
  }
  EXPECT_EQ(called, 60);
}

class JobLimitsTest : public JobQueueTest {
 protected:
  JobLimitsTest() { queue_.set_usage(&usage_); }

  HttpError refused(const Caller& caller) {
    return refusal_of([&] { queue_.submit({.request = {{"prompt", "a fox"}}, .caller = caller}); });
  }

  KeyUsage usage_{open_sqlite(folder_ / "flux2.db")};
  Caller one_job_{.key = "a-key-hash", .name = "a", .limits = {.queue = 1}};
};

TEST_F(JobLimitsTest, AKeyMayHaveSoManyJobs) {
  EXPECT_EQ(refused(one_job_).status, 0);
  const HttpError error = refused(one_job_);
  EXPECT_EQ(error.status, 429);
  EXPECT_EQ(error.code, "key_queue_full");
  EXPECT_EQ(error.headers.at(0).first, "retry-after");
  EXPECT_STREQ(error.what(), "This key has 1 of the 1 jobs that it may have waiting or running.");
  EXPECT_EQ(queue_.refused().queue, 1);
  Caller other = one_job_;
  other.key = "another";
  EXPECT_EQ(refused(other).status, 0) << "each key has its own limit";
  run_next();
  EXPECT_EQ(refused(one_job_).status, 0) << "its first job has ended";
}

TEST_F(JobLimitsTest, AKeyMayDoSoMuchWorkAnHour) {
  queue_.set_admission([](const Json&) { return int64_t{40}; });
  const Caller caller{.key = "k", .name = "", .limits = {.work = 100}};
  EXPECT_EQ(refused(caller).status, 0);
  run_next();
  EXPECT_EQ(refused(caller).status, 0);
  const HttpError error = refused(caller);
  EXPECT_EQ(error.code, "key_work_exceeded");
  const int seconds = std::stoi(error.headers.at(0).second);
  EXPECT_GT(seconds, 3500) << "the first job leaves the hour in an hour";
  EXPECT_LE(seconds, 3601);
  EXPECT_EQ(queue_.refused().work, 1);
  EXPECT_EQ(usage_.used("k", now_ms() - 1000).work, 80);
  EXPECT_EQ(usage_.used("k", now_ms() + 1000).work, 0);
  usage_.prune(now_ms() + 1000);
  EXPECT_EQ(usage_.used("k", 0).jobs, 1) << "one that still waits is kept";
  EXPECT_EQ(usage_.used("k", 0).work, 40);
}

TEST_F(JobLimitsTest, ARepeatedRequestIsNotLimited) {
  const JobQueue::Submission one{.request = {{"prompt", "a fox"}}, .idempotency_key = "k", .caller = one_job_};
  const auto first = queue_.submit(one);
  bool fits = true;
  queue_.set_admission([&](const Json&) { return fits ? int64_t{1} : throw HttpError(400, "does_not_fit", "too large"); });
  EXPECT_EQ(queue_.submit(one).job.id, first.job.id);
  fits = false;
  const auto second = queue_.submit(one);
  EXPECT_TRUE(second.existed);
  EXPECT_EQ(second.job.id, first.job.id);
  EXPECT_EQ(queue_.refused().queue, 0);
  JobQueue::Submission other = one;
  other.request = {{"prompt", "a cat"}};
  EXPECT_EQ(refusal_of([&] { queue_.submit(other); }).code, "idempotency_key_reused");
  fits = true;
  other.idempotency_key = "another";
  EXPECT_EQ(refusal_of([&] { queue_.submit(other); }).code, "key_queue_full");
}

TEST_F(JobLimitsTest, ARetryCountsForItsCaller) {
  const Job job = queue_.submit({.request = {{"prompt", "a fox"}}, .caller = one_job_}).job;
  run_next("failed");
  queue_.retry(job.id, one_job_);
  EXPECT_EQ(usage_.used(one_job_.key, 0).jobs, 1);
  EXPECT_EQ(refusal_of([&] { queue_.retry(job.id, one_job_); }).code, "key_queue_full");
}

TEST_F(JobLimitsTest, IdempotencyKeysBelongToTheCaller) {
  const Caller other{.key = "another-key-hash", .name = "", .limits = {}};
  const auto first = queue_.submit({.request = {{"prompt", "a fox"}}, .idempotency_key = "k", .caller = one_job_});
  const auto second = queue_.submit({.request = {{"prompt", "a cat"}}, .idempotency_key = "k", .caller = other});
  EXPECT_FALSE(second.existed);
  EXPECT_NE(first.job.id, second.job.id);
  EXPECT_TRUE(queue_.submit({.request = {{"prompt", "a cat"}}, .idempotency_key = "k", .caller = other}).existed);
}

}  // namespace
}  // namespace flux2
