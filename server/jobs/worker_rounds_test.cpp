// Which previews a worker makes, and images in several rounds, with the bundled model.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "image/read_image.h"
#include "server/jobs/test_worker.h"

namespace flux2 {
namespace {

using testing::ElementsAre;

class WorkerRounds : public WorkerTest {
 protected:
  void SetUp() override { start(); }

  std::string submit(const Json& more) {
    Json members = {{"steps", 4}, {"seed", 5}, {"preview", "off"}};
    members.update(more);
    return queue_image(members);
  }
  // The steps after which a preview was made.
  std::vector<int> previewed(const Json& more) {
    std::vector<int> steps;
    const int64_t listener = events_.listen([&](const Event& event) {
      if (event.name == "preview") steps.push_back(parse_json(event.data)["step"].get<int>());
    });
    EXPECT_EQ(finished(submit(more)).state, "completed");
    events_.leave(listener);
    return steps;
  }
  std::vector<std::vector<uint8_t>> pixels(const Job& job) {
    std::vector<std::vector<uint8_t>> all;
    for (const JobImage& image : job.images) all.push_back(read_image(assets_.path_of(*assets_.get(image.asset))).pixels);
    return all;
  }
};

// Its claim was answered by an error, say, after the database had stored it.
TEST_F(WorkerRounds, AJobThatTheWorkerDoesNotHaveIsInterrupted) {
  worker_.reset();
  const std::string id = submit(Json::object());
  ASSERT_TRUE(store_->claim_one(id, "forgetful", now_ms() - 60'000));
  start({.name = "forgetful", .lease = std::chrono::milliseconds(120)});
  const Job job = finished(id);
  EXPECT_EQ(job.state, "failed");
  EXPECT_EQ(job.error["code"], "interrupted");
}

TEST_F(WorkerRounds, AModelThatCannotBeLoadedIsAnnounced) {
  std::promise<Json> failed;
  const int64_t listener = events_.listen([&](const Event& event) {
    if (event.name == "model.failed") failed.set_value(parse_json(event.data));
  });
  worker_->load("no-such-model");
  std::future<Json> told = failed.get_future();
  ASSERT_EQ(told.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  events_.leave(listener);
  const Json data = told.get();
  EXPECT_EQ(data["model"], "no-such-model");
  EXPECT_FALSE(data["error"]["code"].get<std::string>().empty());
  EXPECT_THAT(data["error"]["message"].get<std::string>(), testing::HasSubstr("no-such-model"));
}

TEST_F(WorkerRounds, OnlyThePreviewsThatAJobAsksForAreDecoded) {
  EXPECT_THAT(previewed({{"preview", "full"}}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(previewed({{"preview", {{"mode", "full"}, {"count", 2}}}}), ElementsAre(1, 3));
  EXPECT_THAT(previewed({{"preview", {{"mode", "linear"}, {"every", 3}}}}), ElementsAre(3, 4));
  EXPECT_THAT(previewed({{"preview", "off"}}), ElementsAre());
}

// Previews are encoded on a thread of their own, images on others.
TEST_F(WorkerRounds, PreviewsComeInOrderAndBeforeTheImage) {
  std::mutex mutex;
  std::vector<std::string> told;
  const int64_t listener = events_.listen([&](const Event& event) {
    const std::lock_guard lock(mutex);
    if (event.name == "preview") told.push_back(fmt::format("preview {}", parse_json(event.data)["step"].get<int>()));
    if (event.name == "image" || event.name == "job.completed") told.push_back(event.name);
  });
  const std::string id = submit({{"preview", "linear"}});
  EXPECT_EQ(finished(id).state, "completed");
  for (int i = 0; i < 1000 && queue_.preview(id); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(queue_.preview(id)) << "it leaves with the job";
  worker_->stop();  // the last event has been told
  events_.leave(listener);
  EXPECT_THAT(told, ElementsAre("preview 1", "preview 2", "preview 3", "preview 4", "image", "job.completed"));
}

TEST_F(WorkerRounds, RoundsGiveTheSameImages) {
  const Job whole = finished(submit({{"count", 3}, {"steps", 2}}));
  const Job parts = finished(submit({{"count", 3}, {"rounds", 2}, {"steps", 2}}));
  ASSERT_EQ(whole.images.size(), 3u);
  EXPECT_EQ(pixels(parts), pixels(whole));
  EXPECT_EQ(parts.images[2].seed, 7);
  EXPECT_EQ(parts.images[2].index, 2);
}

TEST_F(WorkerRounds, ASkippedRoundIsLeftOut) {
  std::atomic<bool> skipped = false;
  const int64_t listener = events_.listen([&](const Event& event) {
    if (event.name != "progress" || parse_json(event.data)["phase"] != "denoise" || skipped.exchange(true)) return;
    queue_.skip(event.job);
  });
  const Job job = finished(submit({{"count", 3}, {"rounds", 3}}));
  events_.leave(listener);
  EXPECT_EQ(job.state, "completed") << job.error.dump();
  ASSERT_EQ(job.images.size(), 2u);
  EXPECT_EQ(job.images[0].seed, 6);
  EXPECT_EQ(job.images[1].seed, 7);

  // The other rounds of a job that is cancelled do not run.
  const std::string cancelled = submit({{"count", 3}, {"rounds", 3}, {"steps", 250}});
  for (int i = 0; i < 1000 && store_->get(cancelled)->state == "queued"; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  queue_.skip(cancelled);
  queue_.cancel(cancelled);
  EXPECT_EQ(finished(cancelled).state, "cancelled");
}

}  // namespace
}  // namespace flux2
