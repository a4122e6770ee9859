#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "base/error.h"
#include "hub/registry/database.h"
#include "image/test_images.h"
#include "image/write_image.h"
#include "server/store/asset_store.h"
#include "server/store/ids.h"
#include "server/store/sql_store.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

int kill_count() {
  const char* text = std::getenv("FLUX2_KILLS");
  return text ? std::max(std::atoi(text), 1) : 40;
}

// Submits, claims, stores images and finishes jobs until it is killed.
[[noreturn]] void use_stores_forever(const fs::path& folder, unsigned seed) {
  try {
    const auto store = open_sqlite_store(folder / "flux2.db");
    AssetStore assets(folder);
    const std::string worker = "w" + std::to_string(getpid());
    std::mt19937 random(seed);
    for (unsigned n = 0;; ++n) {
      Job job;
      job.id = new_id();
      job.kind = "generate";
      job.request = {{"prompt", "a fox"}, {"seed", n}};
      store->insert(job, 1'000'000);
      store->add_event("job.queued", "{}", now_ms());
      if (random() % 4 == 0) continue;
      auto claimed = store->claim("gpu", worker, "", now_ms());
      if (!claimed) continue;
      for (int i = 0; i < 2; ++i) {
        const auto bytes = encode_png(test_image(8, 8, 3, static_cast<unsigned>(random())));
        const Asset asset = assets.put(bytes, {.kind = "image", .job = claimed->id});
        store->add_image(claimed->id, worker, {.index = i, .asset = asset.id, .width = 8, .height = 8});
        if (random() % 3 == 0) assets.thumbnail(asset);
      }
      claimed->state = random() % 5 == 0 ? "failed" : "completed";
      claimed->result = {{"warnings", Json::array()}};
      store->finish(*claimed);
      store->renew(worker, {claimed->id}, now_ms());
      const auto oldest = assets.list({.limit = 200});
      if (random() % 6 == 0 && !oldest.empty()) assets.remove(oldest.back().id);
    }
  } catch (const std::exception&) {
    _exit(1);
  }
}

class StoreKill : public ::testing::Test {
 protected:
  void check_after_kill() {
    const auto store = open_sqlite_store(folder_ / "flux2.db");
    AssetStore assets(folder_);
    const Database database(folder_ / "flux2.db", Database::Access::Write);
    Statement integrity = database.prepare("PRAGMA integrity_check");
    ASSERT_TRUE(integrity.step());
    ASSERT_EQ(integrity.text(0), "ok");

    EXPECT_EQ(assets.sweep(0).rows_missing, 0) << "a row without a file";
    EXPECT_EQ(assets.sweep(0).files_removed, 0);
    std::set<std::string> stored;
    for (const Asset& asset : assets.list({.limit = 1'000'000})) {
      stored.insert(asset.id);
      EXPECT_EQ(fs::file_size(assets.path_of(asset)), asset.bytes);
    }
    for (const auto& file : fs::directory_iterator(folder_ / "generated"))
      EXPECT_TRUE(stored.count(file.path().stem().string())) << file.path() << " has no row";
    EXPECT_TRUE(fs::is_empty(folder_ / "workspace"));

    store->recover(now_ms() + 31'000);
    std::set<int64_t> places;
    std::map<std::string, int> states;
    for (const Job& job : store->list({.limit = 1'000'000})) {
      ++states[job.state];
      EXPECT_TRUE(places.insert(job.seq).second);
      EXPECT_TRUE(job.state == "queued" || job.is_final()) << job.state;
      EXPECT_EQ(job.state == "queued", job.finished == 0);
      EXPECT_EQ(job.state == "queued", job.worker.empty());
      EXPECT_TRUE(job.state != "completed" || job.images.size() == 2) << job.images.size();
      EXPECT_TRUE(job.state != "queued" || job.images.empty());
      EXPECT_TRUE(job.error.is_null() || job.error["code"] == "interrupted");
      if (!job.error.is_null()) ++states["interrupted"];
    }
    interrupted_ = states["interrupted"];
    completed_ = states["completed"];
    EXPECT_GE(completed_, last_completed_) << "a finished job was lost";
    last_completed_ = completed_;
  }

  fs::path folder_ = server_test_folder();
  int completed_ = 0, last_completed_ = 0, interrupted_ = 0;
};

TEST_F(StoreKill, LosesNothingAtRandomMoments) {
  std::mt19937 random(20261116);
  int killed = 0;
  for (int i = 0; i < kill_count() && !HasFailure(); ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) use_stores_forever(folder_, static_cast<unsigned>(random()));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 80'000));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the process ended by itself with status " << status;
    ++killed;
    check_after_kill();
  }
  EXPECT_EQ(killed, kill_count());
  EXPECT_GT(completed_, 0);
  EXPECT_GT(interrupted_, 0);
}

}  // namespace
}  // namespace flux2
