#include <atomic>
#include <cmath>
#include <map>

#include "image/test_images.h"
#include "image/write_image.h"
#include "server/store/asset_store.h"
#include "server/store/key_store.h"
#include "server/store/key_usage.h"
#include "server/store/postgres_sql.h"
#include "server/store/run_store.h"
#include "server/store/sql_store.h"
#include "server/store/store_tests.h"
#include "server/store/test_postgres.h"
#include "server/store/test_processes.h"
#include "server/store/test_proxy.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// Every test has a database of its own, named after its folder.
std::string database_of(const fs::path& folder) {
  std::string name = "t_";
  for (const char c : folder.filename().string())
    name += std::isalnum(static_cast<unsigned char>(c)) ? static_cast<char>(std::tolower(static_cast<unsigned char>(c))) : '_';
  return name.substr(0, 63);
}

std::string url_of(const fs::path& folder) { return test_postgres().url(database_of(folder)); }

std::unique_ptr<JobStore> postgres_in(const fs::path& folder) { return open_job_store(open_postgres(url_of(folder))); }

INSTANTIATE_TEST_SUITE_P(Postgres, StoreTest,
                         ::testing::Values(StoreKind{"postgres", postgres_in, [] { return TestPostgres::missing(); }}),
                         [](const auto& kind) { return kind.param.name; });

class PostgresTest : public ::testing::Test {
 protected:
  void SetUp() override { SKIP_WITHOUT_POSTGRES(); }

  static Job job_for(const std::string& worker = "") {
    Job job;
    job.id = new_id();
    job.kind = "generate";
    job.worker = worker;
    job.created = now_ms();
    return job;
  }

  fs::path folder_ = server_test_folder();
};

// Claims and finishes until nothing waits, with several threads; returns what each claimed.
std::vector<std::string> claim_all(JobStore& store, int threads, const std::string& name) {
  std::mutex mutex;
  std::vector<std::string> claimed;
  {
    std::vector<std::jthread> running;
    for (int t = 0; t < threads; ++t)
      running.emplace_back([&, t] {
        const std::string worker = name + std::to_string(t), model = t % 2 == 0 ? "" : "loaded";
        while (auto job = store.claim("gpu", worker, model, now_ms())) {
          job->state = "completed";
          EXPECT_TRUE(store.finish(*job));
          const std::lock_guard lock(mutex);
          claimed.push_back(job->id);
        }
      });
  }
  return claimed;
}

TEST_F(PostgresTest, ThreeProcessesOfEightThreadsClaimEachJobOnce) {
  constexpr int kJobs = 500, kProcesses = 3;
  {
    const auto store = postgres_in(folder_);
    for (int i = 0; i < kJobs; ++i) store->insert(job_for(), 10'000);
  }
  const auto claimed = lines_of_processes(folder_, kProcesses, [&](int number, std::ostream& lines) {
    const auto store = postgres_in(folder_);
    for (const std::string& id : claim_all(*store, 8, "p" + std::to_string(number) + "t")) lines << id << "\n";
  });
  EXPECT_EQ(claimed.size(), size_t{kJobs});
  EXPECT_EQ(std::set<std::string>(claimed.begin(), claimed.end()).size(), size_t{kJobs});
  EXPECT_EQ(postgres_in(folder_)->list({.state = "completed", .limit = 1000}).size(), size_t{kJobs});
}

TEST_F(PostgresTest, EventsOfManyWritersAppearInOrder) {
  const auto reader = postgres_in(folder_);
  std::vector<int64_t> seen;
  std::atomic<bool> done = false;
  std::jthread reading([&] {
    for (int64_t last = 0;;) {
      const bool end = done;
      for (const StoredEvent& event : reader->events_after(last)) seen.push_back(last = event.id);
      if (end) return;
    }
  });
  {
    const auto one = postgres_in(folder_), two = postgres_in(folder_);
    std::vector<std::jthread> writers;
    for (int t = 0; t < 6; ++t)
      writers.emplace_back([&, t] {
        for (int i = 0; i < 30; ++i) (t % 2 == 0 ? *one : *two).add_event("e", "{}", 1);
      });
  }
  done = true;
  reading.join();
  EXPECT_EQ(seen.size(), 180u) << "an event became visible after one with a higher id";
}

// Jobs are inserted, claimed and finished by several threads while the server crashes twice.
TEST_F(PostgresTest, ARestartLosesNothingAndRepeatsNothing) {
  const auto one = postgres_in(folder_), two = postgres_in(folder_);
  std::atomic<bool> stop = false;
  std::atomic<int> inserted = 0, finished = 0, events = 0;
  std::mutex mutex;
  std::multiset<std::string> ended;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        JobStore& store = t % 2 == 0 ? *one : *two;
        while (!stop) {
          EXPECT_FALSE(store.insert(job_for(), 1'000'000).existed);
          ++inserted;
          store.add_event("job.queued", "{}", 1);
          ++events;
        }
      });
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&, t] {
        JobStore& store = t % 2 == 0 ? *two : *one;
        const std::string worker = "w" + std::to_string(t);
        while (!stop) {
          auto job = store.claim("gpu", worker, "", now_ms());
          if (!job) continue;
          job->state = "completed";
          EXPECT_TRUE(store.finish(*job)) << "finished by somebody else, or twice";
          ++finished;
          const std::lock_guard lock(mutex);
          ended.insert(job->id);
        }
      });
    for (int i = 0; i < 2; ++i) {
      std::this_thread::sleep_for(milliseconds(300));
      test_postgres().restart();
    }
    std::this_thread::sleep_for(milliseconds(300));
    stop = true;
  }
  EXPECT_GT(finished, 0);
  EXPECT_EQ(std::set<std::string>(ended.begin(), ended.end()).size(), ended.size()) << "a job ran twice";
  const auto store = postgres_in(folder_);
  std::map<std::string, int> states;
  for (const Job& job : store->list({.limit = 1'000'000})) ++states[job.state];
  EXPECT_EQ(states["completed"], finished);
  EXPECT_EQ(states["queued"], inserted - finished);
  EXPECT_EQ(states["running"], 0) << "a claim was stored whose answer got lost";
  if (events < 1000) {
    EXPECT_EQ(store->events_after(0).size(), static_cast<size_t>(events.load()));
  }
}

// The connection breaks at the COMMIT of one change.
class PostgresCut : public PostgresTest {
 protected:
  void SetUp() override {
    PostgresTest::SetUp();
    if (IsSkipped()) return;
    url_of(folder_);  // creates it
    socket_ = fs::path("/tmp") / ("flux2_px_" + std::to_string(getpid()));
    fs::create_directories(socket_);
    proxy_ = std::make_unique<TestProxy>(socket_, test_postgres().folder());
    store_ = open_job_store(open_postgres(TestPostgres::url_in(socket_, database_of(folder_))));
  }
  void TearDown() override {
    store_.reset();
    proxy_.reset();
    if (!socket_.empty()) fs::remove_all(socket_);
  }

  void all_changes_count_once(TestProxy::Cut cut) {
    proxy_->cut_next(cut);
    const auto inserted = store_->insert(job_for(), 1);
    EXPECT_TRUE(proxy_->has_cut());
    EXPECT_FALSE(inserted.existed);
    EXPECT_EQ(store_->list({}).size(), 1u);

    proxy_->cut_next(cut);
    store_->add_event("e", "{}", 1);
    EXPECT_TRUE(proxy_->has_cut());
    EXPECT_EQ(store_->events_after(0).size(), 1u);

    auto job = store_->claim("gpu", "w", "", now_ms());
    ASSERT_TRUE(job);
    proxy_->cut_next(cut);
    job->state = "completed";
    EXPECT_TRUE(store_->finish(*job)) << "the worker must learn that its own change counts";
    EXPECT_TRUE(proxy_->has_cut());
    EXPECT_EQ(store_->get(job->id)->state, "completed");
  }

  fs::path socket_;
  std::unique_ptr<TestProxy> proxy_;
  std::unique_ptr<JobStore> store_;
};

TEST_F(PostgresCut, ACommitThatDidNotArriveIsRepeated) { all_changes_count_once(TestProxy::Cut::BeforeCommit); }
TEST_F(PostgresCut, ACommitWhoseAnswerGotLostIsNotRepeated) { all_changes_count_once(TestProxy::Cut::AfterCommit); }

TEST_F(PostgresTest, SaysThatTheServerIsAway) {
  const auto database = open_postgres(url_of(folder_), {.patience = milliseconds(300)});
  const auto store = open_job_store(database);
  EXPECT_TRUE(store->is_available());
  test_postgres().stop();
  EXPECT_THROW(store->get(new_id()), DatabaseAway);
  EXPECT_FALSE(store->is_available());
  test_postgres().start();
  EXPECT_FALSE(store->get(new_id()));
  EXPECT_TRUE(store->is_available());
}

// While the database is away nobody can renew a lease. A worker that lives gets time to do it afterwards.
TEST_F(PostgresTest, ALongAbsenceDoesNotInterruptJobsOfLivingWorkers) {
  const auto store = open_job_store(open_postgres(url_of(folder_)), milliseconds(2000));
  store->insert(job_for(), 10);
  const Job job = *store->claim("gpu", "w", {}, now_ms());
  test_postgres().stop();
  std::jthread back([] {
    std::this_thread::sleep_for(milliseconds(2300));
    test_postgres().start();
  });
  store->get(job.id);  // waits
  ASSERT_GT(now_ms(), job.lease_until);
  EXPECT_TRUE(store->recover(now_ms()).empty()) << "the worker had no chance";
  store->renew("w", {job.id}, now_ms());
  std::this_thread::sleep_for(milliseconds(1100));
  EXPECT_TRUE(store->recover(now_ms()).empty());
  EXPECT_EQ(store->recover(now_ms() + 2100).size(), 1u) << "later, leases count again";
}

TEST_F(PostgresTest, SignalsReachOtherProcessesOnly) {
  const auto one = postgres_in(folder_), two = postgres_in(folder_);
  const auto mine = one->signals(), theirs = two->signals();
  ASSERT_TRUE(mine && theirs);
  for (SqlSignals* signals : {mine.get(), theirs.get()}) {
    const auto first = signals->wait(milliseconds(1000));
    ASSERT_EQ(first.size(), 1u);
    EXPECT_EQ(first[0].kind, kMissedSignal);
  }
  const Job job = one->insert(job_for(), 10).job;
  two->claim("gpu", "w", "", now_ms());
  one->cancel(job.id, now_ms());
  const int64_t event = one->add_event("e", "{}", 1);
  one->send(kProgressSignal, "{\"step\":1}");
  one->send(kProgressSignal, std::string(10'000, 'x'));  // too long: left out
  std::vector<std::pair<std::string, std::string>> got;
  for (int i = 0; i < 20 && got.size() < 4; ++i)
    for (const SqlSignal& signal : theirs->wait(milliseconds(200))) got.emplace_back(signal.kind, signal.text);
  const std::vector<std::pair<std::string, std::string>> expected = {
      {kWorkSignal, "gpu"}, {kCancelSignal, job.id}, {kEventSignal, std::to_string(event)}, {kProgressSignal, "{\"step\":1}"}};
  EXPECT_EQ(got, expected);
  EXPECT_TRUE(mine->wait(milliseconds(50)).empty()) << "its own signals are left out";

  std::jthread waiting([&] { mine->wait(milliseconds(60'000)); });
  mine->interrupt();
  waiting.join();
}

TEST_F(PostgresTest, SignalsComeBackAfterARestart) {
  const auto store = postgres_in(folder_), other = postgres_in(folder_);
  const auto signals = store->signals();
  signals->wait(milliseconds(1000));
  test_postgres().restart();
  std::vector<std::string> kinds;
  for (int i = 0; i < 50 && kinds.empty(); ++i)
    for (const SqlSignal& signal : signals->wait(milliseconds(200))) kinds.push_back(signal.kind);
  EXPECT_EQ(kinds, (std::vector<std::string>{kMissedSignal}));
  other->insert(job_for(), 10);
  kinds.clear();
  for (int i = 0; i < 50 && kinds.empty(); ++i)
    for (const SqlSignal& signal : signals->wait(milliseconds(200))) kinds.push_back(signal.kind);
  EXPECT_EQ(kinds, (std::vector<std::string>{kWorkSignal}));
}

TEST_F(PostgresTest, KeepsAssetsAndKeys) {
  const auto database = open_postgres(url_of(folder_));
  AssetStore assets(folder_, open_folder_blobs(folder_), database);
  const auto bytes = encode_png(test_image(8, 8, 3, 1));
  const Asset asset = assets.put(bytes, {.kind = "image", .job = "J"});
  EXPECT_EQ(assets.put(bytes, {.kind = "image"}).id, asset.id) << "the same bytes are stored once";
  EXPECT_EQ(assets.list({.job = "J"}).size(), 1u);
  EXPECT_EQ(assets.count({}), 1);
  EXPECT_EQ(assets.sweep(0).rows_missing, 0);
  EXPECT_TRUE(assets.remove(asset.id));
  EXPECT_FALSE(assets.get(asset.id));

  KeyStore keys(database);
  const auto added = keys.add("laptop", "generate");
  keys.add_session({"hash", added.key.sha256, "generate", 5});
  ASSERT_EQ(KeyStore(open_postgres(url_of(folder_))).list().size(), 1u);
  EXPECT_EQ(keys.sessions().size(), 1u);
  EXPECT_TRUE(keys.revoke(added.key.id));
  EXPECT_TRUE(keys.sessions().empty());
}

TEST_F(PostgresTest, KeepsTrainingRunsAndTheUseOfKeys) {
  const auto database = open_postgres(url_of(folder_));
  const auto jobs = open_job_store(database);
  RunStore runs(*database);
  flux2::Run run;
  run.id = new_id();
  run.name = "fox";
  run.state = "running";
  run.request = {{"name", "fox"}};
  runs.insert(run);
  EXPECT_EQ(runs.list("", 10).size(), 1u);
  EXPECT_EQ(runs.list(run.id, 10).size(), 0u);
  EXPECT_EQ(runs.unfinished().size(), 1u);
  const std::vector<RunMetric> metrics = {{.step = 1, .loss = 0.1}, {.step = 2, .loss = std::nan("")}};
  runs.add_metrics(run.id, metrics);
  runs.add_metrics(run.id, metrics);  // a step that is trained again replaces what was there
  const auto found = runs.metrics(run.id, 0, 10);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].loss, 0.1);
  EXPECT_TRUE(std::isnan(found[1].loss));

  KeyUsage usage(database);
  const Job job = jobs->insert(job_for(), 10).job;
  usage.add("key", job.id, 7, 100);
  EXPECT_EQ(usage.used("key", 50).work, 7);
  EXPECT_EQ(usage.used("key", 50).jobs, 1);
  EXPECT_EQ(usage.used("key", 100).work, 0);
  jobs->cancel(job.id, now_ms());
  usage.prune(200);
  EXPECT_EQ(usage.used("key", 50).work, 0);
}

TEST_F(PostgresTest, OldDatabasesMigrateOnceAndNewerOnesAreRefused) {
  const std::string url = url_of(folder_);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) threads.emplace_back([&] { postgres_in(folder_); });
  }
  const auto database = open_postgres(url);
  database->writing([](SqlConnection& sql) { sql.run("UPDATE schema_versions SET version = 1000 WHERE area = 'jobs'"); });
  try {
    open_job_store(database);
    FAIL() << "a newer version was accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Incompatible);
  }
}

// No message shows a password.
TEST(PostgresAddress, KeepsPasswordsToItself) {
  for (const char* address : {"postgres://user:secret@localhost:1/db", "postgres://user:sec:ret@x@localhost:1/db",
                              "postgres://user:secret/ret@localhost/db", "postgres://user:secret@[::1/db",
                              "postgres://user:secret@/db?host=/nonexistent", "postgres://user:p@secret@localhost/db"}) {
    try {
      open_postgres(address, {.patience = milliseconds(1)});
      FAIL() << address;
    } catch (const Error& e) {
      const std::string text = std::string(e.what()) + e.hint().plain();
      EXPECT_EQ(text.find("sec"), std::string::npos) << text;
      EXPECT_EQ(text.find("ret"), std::string::npos) << text;
    }
  }
}

TEST_F(PostgresTest, AnUnknownDatabaseIsReportedAtOnce) {
  test_postgres();
  const auto began = std::chrono::steady_clock::now();
  try {
    open_postgres(TestPostgres::url_in(test_postgres().folder(), "unknown"));
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::InvalidArgument) << e.what();
    EXPECT_NE(std::string(e.what()).find("unknown"), std::string::npos);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

}  // namespace
}  // namespace flux2
