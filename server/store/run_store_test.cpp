#include "server/store/run_store.h"

#include <gtest/gtest.h>

#include <cmath>

#include "server/store/ids.h"
#include "server/store/sqlite_sql.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

class RunStoreTest : public ::testing::Test {
 protected:
  flux2::Run added(const std::string& name) {
    flux2::Run run;
    run.id = new_id();
    run.name = name;
    run.request = {{"options", {{"seed", 3}}}};
    run.folder = "training/" + name;
    run.created = now_ms();
    store_.insert(run);
    return run;
  }

  std::filesystem::path folder_ = server_test_folder();
  std::shared_ptr<SqlDatabase> database_ = open_sqlite(folder_ / "flux2.db");
  RunStore store_{*database_};
};

TEST_F(RunStoreTest, KeepsARunAndItsName) {
  flux2::Run run = added("cats");
  EXPECT_THROW(added("cats"), Error);
  run.state = "running";
  run.step = 5, run.steps = 10;
  run.figures = {{"loss", 0.25}};
  run.wish = "stop";  // which save() leaves alone
  store_.save(run);
  const auto found = RunStore(*open_sqlite(folder_ / "flux2.db")).get(run.id);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "cats");
  EXPECT_EQ(found->state, "running");
  EXPECT_EQ(found->figures["loss"], 0.25);
  EXPECT_EQ(found->request["options"]["seed"], 3);
  EXPECT_EQ(found->wish, "");
  EXPECT_EQ(store_.find("cats")->id, run.id);
  EXPECT_FALSE(store_.find("dogs"));
  EXPECT_FALSE(store_.get(new_id()));
}

TEST_F(RunStoreTest, WishesAndJobsChangeByThemselves) {
  const flux2::Run run = added("cats");
  store_.set_wish(run.id, "pause");
  store_.set_job(run.id, "a");
  store_.save(run);
  EXPECT_EQ(store_.wish(run.id), "pause");
  EXPECT_TRUE(store_.replace_job(run.id, "a", "b"));
  EXPECT_FALSE(store_.replace_job(run.id, "a", "c")) << "another process was quicker";
  EXPECT_EQ(store_.get(run.id)->job, "b");
  store_.set_request(run.id, {{"options", {{"seed", 4}}}});
  EXPECT_EQ(store_.get(run.id)->request["options"]["seed"], 4);
}

TEST_F(RunStoreTest, ListsNewestFirstInPages) {
  const flux2::Run a = added("a"), b = added("b");
  flux2::Run c = added("c");
  EXPECT_EQ(store_.list("", 2).front().id, c.id);
  EXPECT_EQ(store_.list("", 2).size(), 2u);
  ASSERT_EQ(store_.list(b.id, 5).size(), 1u);
  EXPECT_EQ(store_.list(b.id, 5).front().id, a.id);
  c.state = "completed";
  store_.save(c);
  EXPECT_EQ(store_.unfinished().size(), 2u);
}

TEST_F(RunStoreTest, MetricsOfAStepAreReplaced) {
  const flux2::Run run = added("cats");
  std::vector<RunMetric> metrics;
  for (int64_t step = 1; step <= 5; ++step)
    metrics.push_back({.step = step, .loss = 0.1 * static_cast<double>(step), .it_per_s = std::nan("")});
  store_.add_metrics(run.id, metrics);
  store_.drop_metrics_after(run.id, 3);  // the run was resumed there
  EXPECT_EQ(store_.metrics(run.id, 0, 100).size(), 3u);
  metrics[2].loss = 7;
  store_.add_metrics(run.id, metrics);
  const auto found = store_.metrics(run.id, 2, 4);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].step, 2);
  EXPECT_EQ(found[0].loss, 0.2);
  EXPECT_EQ(found[1].loss, 7);
  EXPECT_TRUE(std::isnan(found[0].it_per_s));
  EXPECT_TRUE(store_.metrics("other", 0, 100).empty());
}

TEST_F(RunStoreTest, KeepsSamplesAndCheckpoints) {
  const flux2::Run run = added("cats");
  store_.add_sample(run.id, {.step = 4, .index = 1, .asset = "b", .prompt = "x", .seed = 18446744073709551615u});
  store_.add_sample(run.id, {.step = 4, .index = 0, .asset = "a"});
  store_.add_sample(run.id, {.step = 4, .index = 0, .asset = "c"});  // made again after a resume
  const auto samples = store_.samples(run.id);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].asset, "c");
  EXPECT_EQ(samples[1].seed, 18446744073709551615u);
  store_.add_checkpoint(run.id, {.step = 4, .epoch = 1, .path = "cats-4.safetensors", .sha256 = "ab", .bytes = 10});
  store_.add_checkpoint(run.id, {.step = 2, .path = "cats-2.safetensors", .kept = true});
  ASSERT_EQ(store_.checkpoints(run.id).size(), 2u);
  EXPECT_TRUE(store_.checkpoints(run.id)[0].kept);
  EXPECT_EQ(store_.checkpoints(run.id)[1].bytes, 10);
  store_.remove_checkpoint(run.id, "cats-4.safetensors");
  EXPECT_EQ(store_.checkpoints(run.id).size(), 1u);
}

}  // namespace
}  // namespace flux2
