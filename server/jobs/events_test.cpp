#include "server/jobs/events.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "server/store/sql_store.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

class EventsTest : public ::testing::Test {
 protected:
  std::unique_ptr<JobStore> store_ = open_sqlite_store(server_test_folder() / "flux2.db");
  Events events_{*store_};
};

TEST_F(EventsTest, StoresStateEventsAndNoProgress) {
  std::vector<Event> heard;
  events_.listen([&](const Event& event) { heard.push_back(event); });
  events_.publish("job.started", {{"job_id", "job_A"}}, "A");
  events_.publish_progress("progress", {{"step", 1}}, "A");
  events_.publish("queue", {{"running", 1}});
  ASSERT_EQ(heard.size(), 3u);
  EXPECT_EQ(heard[0].name, "job.started");
  EXPECT_EQ(heard[0].job, "A");
  EXPECT_EQ(heard[0].data, "{\"job_id\":\"job_A\"}");
  EXPECT_FALSE(heard[0].may_drop);
  EXPECT_EQ(heard[1].id, 0);
  EXPECT_TRUE(heard[1].may_drop);
  EXPECT_EQ(heard[2].job, "");
  const auto stored = store_->events_after(0);
  ASSERT_EQ(stored.size(), 2u);
  EXPECT_EQ(stored[0].id, heard[0].id);
  EXPECT_EQ(stored[1].id, heard[2].id);
  EXPECT_EQ(stored[1].name, "queue");
}

TEST_F(EventsTest, ListenersLeave) {
  int first = 0, second = 0;
  const int64_t handle = events_.listen([&](const Event&) { ++first; });
  events_.listen([&](const Event&) { ++second; });
  events_.publish("a", Json::object());
  events_.leave(handle);
  events_.leave(handle);
  events_.publish("b", Json::object());
  EXPECT_EQ(first, 1);
  EXPECT_EQ(second, 2);
}

TEST_F(EventsTest, AListenerThatFailsDisturbsNobody) {
  int heard = 0;
  events_.listen([](const Event&) { throw std::runtime_error("broken"); });
  events_.listen([&](const Event&) { ++heard; });
  events_.publish("a", Json::object());
  EXPECT_EQ(heard, 1);
}

TEST_F(EventsTest, ArriveInOrderFromManyThreads) {
  std::vector<int64_t> ids;  // written by listeners, which are called one at a time for stored events
  std::atomic<int> progress = 0;
  events_.listen([&](const Event& event) {
    if (event.id != 0) ids.push_back(event.id);
    else ++progress;
  });
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([this] {
        for (int i = 0; i < 50; ++i) {
          events_.publish("a", Json::object());
          events_.publish_progress("progress", Json::object(), "A");
          events_.leave(events_.listen([](const Event&) {}));
        }
      });
  }
  EXPECT_EQ(ids.size(), 200u);
  EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
  EXPECT_EQ(progress, 200);
}

// publish() tells them first, because of the order. Whoever looks for them must find them all the same.
TEST_F(EventsTest, CatchUpReturnsWhatPublishHasToldOfOthers) {
  Events other(*store_);
  events_.catch_up();
  other.publish("job.completed", {{"job_id", "job_A"}}, "A");
  events_.publish("mine", Json::object());
  other.publish("later", Json::object());
  std::vector<std::string> names;
  for (const Event& event : events_.catch_up()) names.push_back(event.name);
  EXPECT_EQ(names, (std::vector<std::string>{"job.completed", "later"}));
  EXPECT_TRUE(events_.catch_up().empty());
}

TEST_F(EventsTest, BytesThatAreNoUtf8AreReplaced) {
  std::string data;
  events_.listen([&](const Event& event) { data = event.data; });
  events_.publish("a", {{"text", "x\xff"}});
  EXPECT_EQ(data, "{\"text\":\"x\xef\xbf\xbd\"}");
}

}  // namespace
}  // namespace flux2
