#include "server/jobs/unreturned_jobs.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "server/store/ids.h"
#include "server/store/sql_store.h"
#include "server/store/sqlite_sql.h"
#include "server/store/test_folder.h"

namespace flux2 {
namespace {

using Ids = std::vector<std::string>;

class UnreturnedJobsTest : public ::testing::Test {
 protected:
  // A job that the worker "w" holds and whose end could not be stored.
  std::string unreturned() {
    std::string id = queue_.submit({.request = {{"prompt", "a fox"}}}).job.id;
    EXPECT_TRUE(store_->claim_one(id, "w", now_ms()));
    jobs_.add(id);
    return id;
  }
  void run(const char* text) {
    database_->writing([&](SqlConnection& sql) { sql.run(text); });
  }

  std::filesystem::path folder_ = server_test_folder();
  std::shared_ptr<SqlDatabase> database_ = open_sqlite(folder_ / "flux2.db");
  std::unique_ptr<JobStore> store_ = open_sqlite_store(folder_ / "flux2.db");
  AssetStore assets_{folder_};
  Events events_{*store_};
  JobQueue queue_{*store_, assets_, events_, 100};
  UnreturnedJobs jobs_;
};

TEST_F(UnreturnedJobsTest, AreKeptUntilTheStoreTakesThem) {
  const std::string first = unreturned(), second = unreturned();
  run("CREATE TRIGGER full BEFORE UPDATE ON jobs BEGIN SELECT RAISE(ABORT, 'disk full'); END");
  EXPECT_THROW(jobs_.give_back(queue_, "w"), Error);
  EXPECT_EQ(jobs_.with({"running"}), (Ids{"running", first, second})) << "their leases are still renewed";
  run("DROP TRIGGER full");
  jobs_.give_back(queue_, "w");
  EXPECT_EQ(jobs_.with({}), Ids());
  EXPECT_EQ(store_->get(first)->state, "queued");
  EXPECT_EQ(store_->get(second)->state, "queued");
}

TEST_F(UnreturnedJobsTest, OneThatWasCancelledEnds) {
  const std::string id = unreturned();
  int calls = 0;
  queue_.when_finished(id, [&](const Job& job) { calls += job.state == "cancelled"; });
  queue_.cancel(id);
  EXPECT_EQ(calls, 0);
  jobs_.give_back(queue_, "w");
  EXPECT_EQ(store_->get(id)->state, "cancelled");
  EXPECT_EQ(calls, 1);
}

// A thread gives the job back and, before the other thread is done, the same worker claims it again.
TEST_F(UnreturnedJobsTest, OneThatIsClaimedAgainMeanwhileStaysWithItsWorker) {
  const std::string id = unreturned();
  run("CREATE TABLE returned(id TEXT);"
      "CREATE TRIGGER claimed_at_once AFTER UPDATE OF state ON jobs WHEN NEW.state = 'queued' BEGIN "
      "INSERT INTO returned VALUES(NEW.id);"
      "UPDATE jobs SET state = 'running', worker = 'w', lease_until = NEW.created + 3600000 WHERE id = NEW.id; END");
  {
    std::vector<std::jthread> threads;
    database_->writing([&](SqlConnection& sql) {  // until this ends, they wait for the store
      sql.run("DELETE FROM returned");
      for (int i = 0; i < 2; ++i) threads.emplace_back([&] { jobs_.give_back(queue_, "w"); });
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    });
  }
  const int64_t returned = database_->reading([](SqlConnection& sql) {
    SqlStatement count = sql.prepare("SELECT count(*) FROM returned");
    EXPECT_TRUE(count.step());
    return count.integer(0);
  });
  EXPECT_EQ(returned, 1);
  EXPECT_EQ(store_->get(id)->state, "running");
  EXPECT_EQ(jobs_.with({}), Ids());
}

}  // namespace
}  // namespace flux2
