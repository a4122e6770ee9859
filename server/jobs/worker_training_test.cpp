#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <thread>

#include "image/write_image.h"
#include "server/http/errors.h"
#include "server/jobs/test_worker.h"
#include "server/jobs/training_runs.h"
#include "server/store/sqlite_sql.h"
#include "weights/weight_source.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// Steps of a run that is to be interrupted several times, or once: enough to come in time on a fast machine.
constexpr int64_t kSteps = 45, kFewSteps = 24;

// Training on a few small images.
class WorkerTrainingTest : public WorkerTest {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "images");
    for (int i = 0; i < 4; ++i) {
      Image image(64, 64, 3);
      for (int y = 0; y < 64; ++y)
        for (int x = 0; x < 64; ++x) image.at(x, y)[0] = static_cast<uint8_t>(x < 16 * i ? 230 : 3 * y);
      save_image(folder_ / "images" / (std::to_string(i) + ".png"), encode_png(image));
      std::ofstream(folder_ / "images" / (std::to_string(i) + ".txt")) << "bars " << i;
    }
    start_worker();
  }

  void start_worker() { start({.runs = &runs_, .allowed = allowed_, .preempt_wait = milliseconds(20)}); }
  void restart() {
    worker_.reset();
    start_worker();
  }

  std::string begin(const std::string& name, int64_t steps) {
    const Json body = {
        {"name", name},
        {"dataset", {{"path", (folder_ / "images").string()}, {"general", {{"resolution", 64}, {"batch_size", 2}}}}},
        {"options",
         {{"max_train_steps", steps},
          {"learning_rate", 1e-3},
          {"network_dim", 2},
          {"seed", 7},
          {"save_every_n_steps", 10},
          {"timestep_sampling", "flux2_shift"}}}};
    return training_.create(check_training_request(body, allowed_)).id;
  }
  template <class Condition>
  flux2::Run wait_until(const std::string& id, Condition&& condition) {
    for (int i = 0; i < 24000; ++i, std::this_thread::sleep_for(milliseconds(10)))
      if (flux2::Run run = training_.get(id); run.state == "failed" || condition(run)) return run;
    ADD_FAILURE() << "waited too long for " << training_.get(id).state;
    return training_.get(id);
  }
  flux2::Run wait_for(const std::string& id, const std::string& state) {
    return wait_until(id, [&](const flux2::Run& run) { return run.state == state; });
  }
  flux2::Run wait_for_step(const std::string& id, int64_t step) {
    return wait_until(id, [&](const flux2::Run& run) { return run.step >= step; });
  }

  std::string submit_image(bool preempt) {
    return queue_image({{"prompt", "bars"}, {"steps", 2}, {"seed", 1}, {"preempt", preempt}});
  }

  std::map<std::string, std::vector<float>> values(const std::string& id, const std::string& name) {
    std::map<std::string, std::vector<float>> all;
    const auto file = open_weights(training_.folder_of(training_.get(id)) / (name + ".safetensors"));
    for (const StoredTensor& t : file->tensors()) all[t.name] = file->open(t.name).to_floats();
    return all;
  }
  std::vector<double> losses(const std::string& id) {
    std::vector<double> list;
    for (const RunMetric& metric : runs_.metrics(id, 0, 1'000'000)) list.push_back(metric.loss);
    return list;
  }

  AllowedFolders allowed_{{folder_}};
  std::shared_ptr<SqlDatabase> database_ = open_sqlite(folder_ / "flux2.db");
  RunStore runs_{*database_};
  TrainingRuns training_{context_, defaults_, queue_, runs_, allowed_};
};

TEST_F(WorkerTrainingTest, InterruptionsChangeNothing) {
  const std::string whole = begin("whole", kSteps);
  ASSERT_EQ(wait_for(whole, "completed").state, "completed") << training_.get(whole).error.dump();

  const std::string parts = begin("parts", kSteps);
  wait_for_step(parts, 3);
  const std::string waits = submit_image(false);
  EXPECT_NE(job_to_json(*store_->get(waits), *store_)["message"].get<std::string>().find("preempt"), std::string::npos);
  EXPECT_EQ(finished(submit_image(true)).state, "completed");
  EXPECT_EQ(store_->get(waits)->state, "queued");
  wait_for_step(parts, 12);
  restart();  // as at SIGTERM: the state is saved, the job goes back
  wait_for_step(parts, 18);
  training_.pause(parts);
  ASSERT_EQ(wait_for(parts, "paused").state, "paused");
  EXPECT_EQ(finished(waits).state, "completed") << "a paused run leaves the device to others";
  training_.change(parts, {{"save_every_n_steps", 7}});
  training_.resume(parts);
  wait_for_step(parts, 25);
  training_.change(parts, {{"save_every_n_steps", 5}});  // while it trains
  ASSERT_EQ(wait_for(parts, "completed").state, "completed") << training_.get(parts).error.dump();
  EXPECT_EQ(losses(parts), losses(whole));
  EXPECT_EQ(values(parts, "parts"), values(whole, "whole"));
  EXPECT_EQ(losses(whole).size(), static_cast<size_t>(kSteps));
}

TEST_F(WorkerTrainingTest, SavesItsStateIfAnotherJobMayNotFitBesideIt) {
  const std::string whole = begin("whole", kFewSteps);
  ASSERT_EQ(wait_for(whole, "completed").state, "completed") << training_.get(whole).error.dump();
  worker_.reset();
  defaults_ = exact_settings({{"max-ram", "8"}});  // the limit is one of both together
  start_worker();
  const std::string parts = begin("parts", kFewSteps);
  wait_for_step(parts, 3);
  EXPECT_EQ(finished(submit_image(true)).state, "completed");
  ASSERT_EQ(wait_for(parts, "completed").state, "completed") << training_.get(parts).error.dump();
  EXPECT_EQ(losses(parts), losses(whole));
  EXPECT_EQ(values(parts, "parts"), values(whole, "whole"));
  const auto checkpoints = runs_.checkpoints(parts);
  const bool was_saved = std::any_of(checkpoints.begin(), checkpoints.end(), [](const auto& c) { return c.step % 10 != 0; });
  EXPECT_TRUE(was_saved) << "the state before the image";
}

TEST_F(WorkerTrainingTest, StopsWithAndWithoutSaving) {
  const std::string dropped = begin("dropped", 10'000);
  wait_for_step(dropped, 2);
  training_.stop(dropped, false);
  EXPECT_EQ(wait_for(dropped, "stopped").state, "stopped");
  const std::string kept = begin("kept", 10'000);
  wait_for_step(kept, 2);
  training_.stop(kept, true);
  const flux2::Run run = wait_for(kept, "stopped");
  EXPECT_EQ(runs_.checkpoints(kept).back().step, run.step);
  EXPECT_EQ(finished(run.job).state, "cancelled");
  const std::string adapter = training_.try_checkpoint(run, run.step);
  Json request = {{"kind", "generate"}, {"prompt", "bars"}, {"width", 64}, {"height", 64}, {"steps", 1}, {"seed", 1}};
  request["loras"] = Json::array({{{"name", adapter}, {"weight", 0.5}}});
  EXPECT_EQ(finished(queue_.submit({.request = request}).job.id).state, "completed");
}

TEST_F(WorkerTrainingTest, ARunWhoseServerWasKilledGoesOn) {
  const std::string id = begin("killed", 100'000);  // does not end by itself, however fast the machine is
  wait_for_step(id, 12);
  worker_.reset();
  const flux2::Run before = training_.get(id);
  // What another server finds after a kill: the job has a worker that does not answer.
  store_->claim_one(before.job, "dead", 1);
  for (const Job& job : store_->recover(now_ms() + 3'600'000)) queue_.finished(job);
  training_.revive();
  EXPECT_NE(training_.get(id).job, before.job);
  start_worker();
  wait_for_step(id, before.step + 10);
  training_.stop(id, true);
  const flux2::Run after = wait_for(id, "stopped");
  EXPECT_EQ(after.state, "stopped") << after.error.dump();
  EXPECT_EQ(losses(id).size(), static_cast<size_t>(after.step)) << "each step is there once";
}

TEST_F(WorkerTrainingTest, AFullQueueChangesNoRun) {
  worker_.reset();
  JobQueue full(*store_, assets_, events_, 0);
  TrainingRuns crowded(context_, defaults_, full, runs_, allowed_);
  const Json body = {{"name", "bars"}, {"dataset", {{"path", (folder_ / "images").string()}, {"general", {{"resolution", 64}}}}}};
  EXPECT_THROW(crowded.create(check_training_request(body, allowed_)), HttpError);
  EXPECT_FALSE(runs_.find("bars")) << "its name is free again";
  EXPECT_TRUE(fs::is_empty(folder_ / "training"));

  const std::string id = training_.create(check_training_request(body, allowed_)).id;
  training_.pause(id);
  ASSERT_EQ(training_.get(id).state, "paused");
  EXPECT_THROW(crowded.resume(id), HttpError);
  EXPECT_EQ(training_.get(id).state, "paused");

  // A run whose server was killed waits for a place.
  const std::string before = training_.resume(id).job;
  store_->claim_one(before, "dead", 1);
  for (const Job& job : store_->recover(now_ms() + 3'600'000)) queue_.finished(job);
  EXPECT_NO_THROW(crowded.revive());
  EXPECT_EQ(training_.get(id).state, "preparing");
  EXPECT_EQ(training_.get(id).job, "");
  database_->writing([&](SqlConnection& sql) { sql.run("UPDATE runs SET created = 1"); });  // long ago
  training_.revive();
  EXPECT_FALSE(training_.get(id).job.empty());
}

TEST_F(WorkerTrainingTest, AJobWhoseEndIsNotStoredGoesBackToTheQueue) {
  database_->writing([&](SqlConnection& sql) {
    sql.run("CREATE TRIGGER full BEFORE UPDATE OF error ON jobs BEGIN SELECT RAISE(ABORT, 'disk full'); END");
  });
  const std::string id = queue_.submit({.request = {{"kind", "train"}, {"run", "none"}}, .kind = "train"}).job.id;
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(store_->get(id)->is_final());
  database_->writing([&](SqlConnection& sql) { sql.run("DROP TRIGGER full"); });
  const Job job = finished(id);
  EXPECT_EQ(job.state, "failed");
  EXPECT_EQ(job.error["message"], "the training run of this job does not exist");
}

TEST_F(WorkerTrainingTest, AStoppedRunStaysStoppedThoughTheEndOfItsJobIsNotStored) {
  const std::string id = begin("stopped", 10'000);
  wait_for_step(id, 2);
  database_->writing([&](SqlConnection& sql) {
    sql.run("CREATE TRIGGER full BEFORE UPDATE OF error ON jobs BEGIN SELECT RAISE(ABORT, 'disk full'); END");
  });
  training_.stop(id, true);
  const flux2::Run run = wait_for(id, "stopped");
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_FALSE(store_->get(run.job)->is_final());
  database_->writing([&](SqlConnection& sql) { sql.run("DROP TRIGGER full"); });
  EXPECT_EQ(finished(run.job).state, "cancelled");
  EXPECT_EQ(training_.get(id).state, "stopped");
  EXPECT_EQ(training_.get(id).step, run.step) << "it did not train again";
}

TEST_F(WorkerTrainingTest, AFailedRunSaysWhy) {
  const std::string id = begin("fails", 5);
  worker_.reset();
  if (training_.get(id).state != "completed") {
    fs::remove_all(folder_ / "images");
    start_worker();
    const flux2::Run run = wait_for(id, "failed");
    EXPECT_FALSE(run.error["message"].get<std::string>().empty());
    EXPECT_EQ(finished(run.job).state, "failed") << "the job ends after its run";
  }
}

}  // namespace
}  // namespace flux2
