#include "server/jobs/task_worker.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "server/store/ids.h"
#include "server/store/sql_store.h"
#include "server/store/sqlite_sql.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

using std::chrono::milliseconds;

class TaskWorkerTest : public ::testing::Test {
 protected:
  Job queued() { return queue_.submit({.request = {{"n", 1}}, .kind = "verify", .lane = "cpu"}).job; }
  Job finished(const std::string& id) {
    for (int i = 0; i < 2000; ++i, std::this_thread::sleep_for(milliseconds(5)))
      if (const auto job = store_->get(id); job && job->is_final()) return *job;
    ADD_FAILURE() << "the job is still " << store_->get(id)->state;
    return {};
  }
  void run(const char* text) {
    open_sqlite(folder_ / "flux2.db")->writing([&](SqlConnection& sql) { sql.run(text); });
  }

  std::filesystem::path folder_ = server_test_folder();
  AppContext context_;
  std::unique_ptr<JobStore> store_ = open_sqlite_store(folder_ / "flux2.db");
  AssetStore assets_{folder_};
  Events events_{*store_};
  JobQueue queue_{*store_, assets_, events_, 100};
  TaskWorker worker_{context_, queue_, {.name = "w", .lane = "cpu"}};
};

TEST_F(TaskWorkerTest, RunsJobsOfItsLane) {
  worker_.add("verify", [](RunningTask& task) { task.set_result({{"n", task.job().request["n"]}}); });
  worker_.start();
  const Job job = finished(queued().id);
  EXPECT_EQ(job.state, "completed");
  EXPECT_EQ(job.result["n"], 1);
}

TEST_F(TaskWorkerTest, AJobWhoseEndIsNotStoredGoesBackToTheQueue) {
  std::atomic<int> runs = 0;
  worker_.add("verify", [&](RunningTask&) {
    if (++runs == 1) run("CREATE TRIGGER full BEFORE UPDATE OF result ON jobs BEGIN SELECT RAISE(ABORT, 'disk full'); END");
    else run("DROP TRIGGER full");
  });
  worker_.start();
  EXPECT_EQ(finished(queued().id).state, "completed");
  EXPECT_EQ(runs, 2);
}

TEST_F(TaskWorkerTest, AJobDoesNotFailBecauseTheDatabaseIsAway) {
  std::atomic<int> runs = 0;
  worker_.add("verify", [&](RunningTask&) {
    if (++runs == 1) throw DatabaseAway(ErrorCode::Internal, "the database is away");
  });
  worker_.start();
  EXPECT_EQ(finished(queued().id).state, "completed");
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace flux2
