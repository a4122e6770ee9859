#include "server/jobs/store_watcher.h"

#include <gtest/gtest.h>

#include <future>

#include "server/store/ids.h"
#include "server/store/postgres_sql.h"
#include "server/store/sql_store.h"
#include "server/store/test_folder.h"
#include "server/store/test_postgres.h"

namespace flux2 {
namespace {

using std::chrono::milliseconds;

// What one process has.
struct Side {
  Side(const std::filesystem::path& folder, std::unique_ptr<JobStore> opened)
      : store(std::move(opened)), assets(folder), events(*store), queue(*store, assets, events, 100), watcher(queue, Log()) {
    events.listen([this](const Event& event) {
      const std::lock_guard lock(mutex);
      heard.push_back(event);
    });
    watcher.start();
  }

  // Waits until an event of this name was heard.
  std::optional<Event> hears(const std::string& name, milliseconds at_most = milliseconds(5000)) {
    for (const auto until = std::chrono::steady_clock::now() + at_most; std::chrono::steady_clock::now() < until;) {
      {
        const std::lock_guard lock(mutex);
        for (const Event& event : heard)
          if (event.name == name) return event;
      }
      std::this_thread::sleep_for(milliseconds(5));
    }
    return std::nullopt;
  }

  std::vector<int64_t> stored_ids() {
    const std::lock_guard lock(mutex);
    std::vector<int64_t> ids;
    for (const Event& event : heard)
      if (event.id != 0) ids.push_back(event.id);
    return ids;
  }

  std::unique_ptr<JobStore> store;
  AssetStore assets;
  Events events;
  JobQueue queue;
  std::mutex mutex;
  std::vector<Event> heard;
  StoreWatcher watcher;
};

class StoreWatcherTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!postgres()) return;
    if (!postgres_available()) GTEST_SKIP() << "this build has no libpq";
    SKIP_WITHOUT_POSTGRES();
  }

  bool postgres() const { return GetParam() == std::string("postgres"); }

  std::unique_ptr<Side> process() {
    auto store =
        postgres() ? open_job_store(open_postgres(test_postgres().url(database_))) : open_sqlite_store(folder_ / "flux2.db");
    return std::make_unique<Side>(folder_, std::move(store));
  }

  static JobQueue::Submission a_fox() { return {.request = {{"kind", "generate"}, {"prompt", "a fox"}}}; }

  std::filesystem::path folder_ = server_test_folder();
  std::string database_ = "w" + std::to_string(now_ms() % 1'000'000'000);
};

TEST_P(StoreWatcherTest, AJobOfOneProcessIsRunByAnother) {
  const auto front = process(), back = process();
  const Job job = front->queue.submit(a_fox()).job;
  std::promise<std::string> ended;
  front->queue.when_finished(job.id, [&](const Job& done) { ended.set_value(done.state); });
  EXPECT_TRUE(back->hears("job.queued"));

  auto claimed = back->store->claim("gpu", "w", {}, now_ms());
  ASSERT_TRUE(claimed);
  back->queue.started(*claimed);
  const auto started = front->hears("job.started");
  ASSERT_TRUE(started);
  EXPECT_EQ(started->job, job.id) << "it belongs to the job's own stream";

  claimed->state = "completed";
  ASSERT_TRUE(back->store->finish(*claimed));
  back->queue.finished(*claimed);
  auto end = ended.get_future();
  ASSERT_EQ(end.wait_for(std::chrono::seconds(5)), std::future_status::ready);
  EXPECT_EQ(end.get(), "completed");
  EXPECT_TRUE(front->hears("job.completed"));
}

// An event of its own may show a process the end of another's job before it looks for it.
TEST_P(StoreWatcherTest, WhoWaitsForAJobOfAnotherProcessIsToldThoughThisOnePublishes) {
  const auto front = process(), back = process();
  const Job job = front->queue.submit(a_fox()).job;
  std::promise<void> ended;
  front->queue.when_finished(job.id, [&](const Job&) { ended.set_value(); });
  Job claimed = *back->store->claim("gpu", "w", {}, now_ms());
  claimed.state = "completed";
  ASSERT_TRUE(back->store->finish(claimed));
  back->queue.finished(claimed);
  front->events.publish("mine", Json::object());
  EXPECT_EQ(ended.get_future().wait_for(std::chrono::seconds(3)), std::future_status::ready);
}

TEST_P(StoreWatcherTest, EventsOfBothArriveOnceAndInOrder) {
  const auto one = process(), two = process();
  {
    std::vector<std::jthread> threads;
    for (Side* side : {one.get(), two.get()})
      threads.emplace_back([side] {
        for (int i = 0; i < 40; ++i) side->events.publish("e", {{"i", i}});
      });
  }
  one->events.publish("last", Json::object());
  ASSERT_TRUE(one->hears("last") && two->hears("last"));
  for (Side* side : {one.get(), two.get()}) {
    const auto ids = side->stored_ids();
    EXPECT_EQ(ids.size(), 81u);
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
    EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end()) << "an event came twice";
  }
}

TEST_P(StoreWatcherTest, WhatHappenedBeforeIsNoNews) {
  process()->events.publish("old", Json::object());
  const auto later = process(), other = process();
  other->events.publish("new", Json::object());
  EXPECT_TRUE(later->hears("new"));
  EXPECT_FALSE(later->hears("old", milliseconds(1)));
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreWatcherTest, ::testing::Values("sqlite", "postgres"),
                         [](const auto& kind) { return std::string(kind.param); });

class PostgresWatcherTest : public StoreWatcherTest {};

TEST_P(PostgresWatcherTest, WorkProgressAndCancelAreToldAtOnce) {
  const auto front = process(), back = process();
  std::this_thread::sleep_for(milliseconds(200));  // both listen
  const uint64_t seen = back->queue.submissions();
  auto woken = std::async(std::launch::async, [&] {
    const auto began = std::chrono::steady_clock::now();
    back->queue.wait_for_work(milliseconds(10'000), seen);
    return std::chrono::steady_clock::now() - began;
  });
  const Job job = front->queue.submit(a_fox()).job;
  EXPECT_LT(woken.get(), milliseconds(3000));
  ASSERT_TRUE(back->store->claim("gpu", "w", {}, now_ms()));

  back->events.publish_progress("progress", {{"step", 1}}, job.id);
  const auto progress = front->hears("progress");
  ASSERT_TRUE(progress);
  EXPECT_EQ(progress->job, job.id);
  EXPECT_EQ(progress->data, "{\"step\":1}");
  EXPECT_TRUE(progress->may_drop);

  front->queue.cancel(job.id);
  for (int i = 0; i < 500 && !back->queue.cancel_noted(job.id); ++i) std::this_thread::sleep_for(milliseconds(5));
  EXPECT_TRUE(back->queue.cancel_noted(job.id));
}

TEST_P(PostgresWatcherTest, ARestartOfTheDatabaseLosesNoEvent) {
  const auto one = process(), two = process();
  one->events.publish("a", Json::object());
  ASSERT_TRUE(two->hears("a"));
  test_postgres().crash();
  test_postgres().start();
  one->events.publish("b", Json::object());
  EXPECT_TRUE(two->hears("b"));
  const Job job = two->queue.submit(a_fox()).job;
  EXPECT_TRUE(one->hears("job.queued"));
}

INSTANTIATE_TEST_SUITE_P(Stores, PostgresWatcherTest, ::testing::Values("postgres"),
                         [](const auto& kind) { return std::string(kind.param); });

}  // namespace
}  // namespace flux2
