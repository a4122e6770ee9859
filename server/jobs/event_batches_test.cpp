#include "server/jobs/event_batches.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

using Batch = std::shared_ptr<const EventBatch>;

// What a listener heard; wait_for() returns when an event of that name has arrived.
struct Heard {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Batch> batches;
  EventBatches::Listener listener() {
    return [this](const Batch& batch) {
      const std::lock_guard lock(mutex);
      batches.push_back(batch);
      changed.notify_all();
    };
  }
  std::vector<Event> events() {
    std::vector<Event> all;
    for (const Batch& batch : batches) all.insert(all.end(), batch->events.begin(), batch->events.end());
    return all;
  }
  bool wait_for(const std::string& name) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, std::chrono::seconds(20), [&] {
      const std::vector<Event> all = events();
      return std::any_of(all.begin(), all.end(), [&](const Event& event) { return event.name == name; });
    });
  }
};

TEST(EventBatches, NothingThatMustArriveIsLost) {
  Heard heard;  // outlives the thread that calls it
  EventBatches batches;
  batches.listen(heard.listener());
  for (int64_t id = 1; id <= 500; ++id) batches.add({.id = id, .name = "image", .data = "{}", .job = "A"});
  batches.add({.id = 501, .name = "end", .data = "{}", .job = ""});
  ASSERT_TRUE(heard.wait_for("end"));
  const std::vector<Event> events = heard.events();
  ASSERT_EQ(events.size(), 501u);
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].id, static_cast<int64_t>(i) + 1);
  EXPECT_EQ(heard.batches.front()->first_id, 1);
  EXPECT_EQ(heard.batches.back()->last_id, 501);
}

TEST(EventBatches, ManyListenersShareOneText) {
  Heard first, second;
  EventBatches batches;
  batches.listen(first.listener());
  batches.listen(second.listener());
  batches.add({.id = 7, .name = "image", .data = "{\"a\":1}", .job = "A"});
  ASSERT_TRUE(first.wait_for("image"));
  ASSERT_TRUE(second.wait_for("image"));
  EXPECT_EQ(*first.batches[0]->text, "id: 7\nevent: image\ndata: {\"a\":1}\n\n");
  EXPECT_EQ(first.batches[0]->text, second.batches[0]->text);
}

TEST(EventBatches, OnlyTheNewestProgressOfAJobWaits) {
  Heard heard;
  EventBatches batches;
  // The first event goes out at once. The listener holds it, so that the next ones wait together.
  std::mutex gate;
  std::unique_lock closed(gate);
  batches.listen([&](const Batch& batch) {
    const std::lock_guard pass(gate);
    heard.listener()(batch);
  });
  batches.add({.id = 1, .name = "first", .data = "{}", .job = ""});
  for (int step = 1; step <= 5; ++step)
    for (const char* job : {"A", "B"})
      batches.add({.name = "progress", .data = std::to_string(step), .job = job, .may_drop = true});
  batches.add({.id = 2, .name = "last", .data = "{}", .job = ""});
  closed.unlock();
  ASSERT_TRUE(heard.wait_for("last"));
  std::map<std::string, std::string> newest;
  int progress = 0;
  for (const Event& event : heard.events())
    if (event.may_drop) newest[event.job] = event.data, ++progress;
  EXPECT_EQ(newest, (std::map<std::string, std::string>{{"A", "5"}, {"B", "5"}}));
  EXPECT_LE(progress, 4) << "at most one of each job with the first event, and one of each after it";
}

TEST(EventBatches, SignsOfLifeAreComments) {
  Heard heard;
  EventBatches batches;
  batches.listen(heard.listener());
  batches.add({.name = kKeepAlive, .data = "{}", .job = "", .may_drop = true});
  ASSERT_TRUE(heard.wait_for(kKeepAlive));
  EXPECT_EQ(*heard.batches[0]->text, ": keep-alive\n\n");
}

TEST(EventBatches, ThoseWhoLeaveHearNoMore) {
  Heard heard, other;
  EventBatches batches;
  const int64_t handle = batches.listen(heard.listener());
  batches.leave(handle);
  EXPECT_FALSE(batches.anybody_listens());
  batches.listen(other.listener());
  batches.add({.id = 1, .name = "a", .data = "{}", .job = ""});
  ASSERT_TRUE(other.wait_for("a"));
  EXPECT_TRUE(heard.batches.empty());
}

}  // namespace
}  // namespace flux2
