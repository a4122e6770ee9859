#include "server/store/sql_store.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "hub/registry/database.h"
#include "server/store/store_tests.h"

namespace flux2 {
namespace {

std::unique_ptr<JobStore> sqlite_in(const std::filesystem::path& folder) { return open_sqlite_store(folder / "flux2.db"); }

INSTANTIATE_TEST_SUITE_P(Sqlite, StoreTest, ::testing::Values(StoreKind{"sqlite", sqlite_in}),
                         [](const auto& kind) { return kind.param.name; });

Job job_of(const std::string& prompt) {
  Job job;
  job.id = new_id();
  job.kind = "generate";
  job.request = {{"prompt", prompt}};
  return job;
}

TEST(SqliteStore, KeepsTheLastFiveThousandFinalJobs) {
  const auto folder = server_test_folder();
  const auto store = sqlite_in(folder);
  std::string first;
  {
    const Job job = store->insert(job_of("a"), 10).job;
    store->cancel(job.id, now_ms());
    first = job.id;
    const Database database(folder / "flux2.db", Database::Access::Write);
    database.run(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5002) "
        "INSERT INTO jobs SELECT printf('%026d', i), project, kind, state, priority, seq + i, lane, model_key, merge_key, "
        "request, "
        "resolved, result, error, phase, step, steps, progress, message, client_ref, '', request_hash, retry_of, worker, "
        "lease_until, cancel, created, started, finished - i FROM jobs, n");
  }
  store->prune(now_ms());
  EXPECT_EQ(store->list({.limit = 10'000}).size(), 5000u);
  EXPECT_TRUE(store->get(first));
  EXPECT_FALSE(store->get(std::string(22, '0') + "5002")) << "the oldest";
}

TEST(SqliteStore, ShowsAFullDiskAsCannotWrite) {
  const auto folder = server_test_folder();
  const auto store = sqlite_in(folder);
  store->insert(job_of("a"), 10);
  const std::string big(8 << 20, 'x');
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // A process that may not write large files gets the same answer from the system as one on a full disk.
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1 << 20, 1 << 20};
    setrlimit(RLIMIT_FSIZE, &limit);
    int status = 1;
    try {
      sqlite_in(folder)->insert(job_of(big), 10);
    } catch (const Error& e) {
      status = e.code() == ErrorCode::CannotWrite ? 0 : 2;
    } catch (const std::exception&) {
      status = 3;
    }
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(store->list({}).size(), 1u);
  store->insert(job_of("b"), 10);
}

TEST(SqliteStore, WaitsForAnotherWriter) {
  const auto folder = server_test_folder();
  const auto store = sqlite_in(folder);
  const Database other(folder / "flux2.db", Database::Access::Write);
  std::jthread holder;
  {
    auto held = std::make_unique<Transaction>(other);
    holder = std::jthread([held = std::move(held)]() mutable {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      held.reset();
    });
  }
  store->insert(job_of("a"), 10);
  EXPECT_EQ(store->list({}).size(), 1u);
}

TEST(SqliteStore, SharesItsFileWithTheRegistry) {
  const auto folder = server_test_folder();
  constexpr const char* kSteps[] = {"CREATE TABLE models (id TEXT)"};
  migrate(Database(folder / "flux2.db", Database::Access::Write), "registry", kSteps);
  sqlite_in(folder)->insert(job_of("a"), 10);
  const Database database(folder / "flux2.db", Database::Access::Write);
  Statement areas = database.prepare("SELECT group_concat(area) FROM (SELECT area FROM schema_versions ORDER BY area)");
  ASSERT_TRUE(areas.step());
  EXPECT_EQ(areas.text(0), "jobs,registry,studio");
}

}  // namespace
}  // namespace flux2
