// `flux2 serve` and `flux2 worker` as several processes on one queue: with SQLite in one data folder, and with PostgreSQL and
// images elsewhere. FLUX2_WORKER_JOBS and FLUX2_KILLS make the long runs longer.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <thread>

#include "base/base64.h"
#include "image/read_image.h"
#include "image/write_image.h"
#include "net/http.h"
#include "server/store/asset_store.h"
#include "server/store/ids.h"
#include "server/store/postgres_sql.h"
#include "server/store/sql_store.h"
#include "server/store/test_postgres.h"
#include "tests/support/fake_s3.h"
#include "tests/support/served.h"

namespace flux2::test {
namespace {

using testing::HasSubstr;

constexpr auto kLease = std::chrono::milliseconds(3000);

int number_of(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::max(std::atoi(text), 1) : otherwise;
}

void pause_ms(int64_t ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); }

class WorkerTest : public Served {
 protected:
  Start program(const char* command, const std::string& data, std::vector<std::string> more) {
    std::vector<std::string> words = {command, "--data", (folder_ / data).string()};
    words.insert(words.end(), shared_.begin(), shared_.end());
    words.insert(words.end(), more.begin(), more.end());
    Start how = start(words);
    how.environment["FLUX2_LEASE_MS"] = std::to_string(kLease.count());
    how.environment.insert(variables_.begin(), variables_.end());
    return how;
  }

  void serve(std::vector<std::string> more = {"--no-worker"}, const std::string& data = "data") {
    more.insert(more.end(), {"--port", "0", "--queue", "100000"});
    listen(program("serve", data, more));
  }
  std::unique_ptr<Subprocess> worker(const std::string& data = "data", std::vector<std::string> more = {}) {
    auto process = std::make_unique<Subprocess>(program("worker", data, std::move(more)));
    EXPECT_TRUE(process->wait_for_error_text("stops it")) << process->wait(10).err;
    return process;
  }

  static Json small_job(int seed, int steps = 2) {
    return {{"prompt", "a red circle"}, {"width", 64}, {"height", 64}, {"steps", steps}, {"seed", seed}};
  }
  std::string submit(const Json& request) const { return ask("POST", "/api/v1/jobs", request)["id"]; }
  size_t image_bytes(const std::string& id) const {
    const HttpAnswer answer = send("GET", "/api/v1/jobs/" + id + "/images/0");
    EXPECT_EQ(answer.status, 200) << id << answer.body;
    return answer.status == 200 ? read_image(std::as_bytes(std::span(answer.body))).pixels.size() : 0;
  }
  // A job that was interrupted is retried until it completes.
  void expect_completed(std::string id) {
    for (int attempt = 0; attempt < 8; ++attempt) {
      const Json last = wait_for(id, "", 300);
      if (last["state"] == "completed") {
        EXPECT_EQ(last["images"].size(), 1u) << last.dump();
        EXPECT_EQ(image_bytes(id), 64u * 64 * 3) << id;
        return;
      }
      ASSERT_EQ(last["state"], "failed") << last.dump();
      ASSERT_EQ(last["error"]["code"], "interrupted") << last.dump();
      ++interrupted_;
      id = ask("POST", "/api/v1/jobs/" + id + "/retry")["id"];
    }
    ADD_FAILURE() << id << " was interrupted again and again";
  }

  std::vector<std::string> shared_;  // options of all processes
  std::map<std::string, std::string> variables_;
  int interrupted_ = 0;
};

TEST_F(WorkerTest, TwoProcessesShareADataFolder) {
  serve();
  const std::string first = submit(small_job(1));
  pause_ms(500);
  EXPECT_EQ(job(first)["state"], "queued") << "a server without a worker runs nothing";
  EXPECT_EQ(send("POST", "/api/v1/models/unload").status, 409);
  auto one = worker();
  EXPECT_EQ(wait_for(first)["state"], "completed");
  EXPECT_EQ(image_bytes(first), 64u * 64 * 3);

  // A client that waits for its answer gets it, though another process computes it.
  const auto began = Clock::now();
  const Json answer = ask("POST", "/v1/images/generations", {{"prompt", "a fox"}, {"size", "64x64"}, {"steps", 2}});
  EXPECT_EQ(read_image(base64_decode(answer["data"][0]["b64_json"].get<std::string>())).width, 64);
  EXPECT_LT(Clock::now() - began, std::chrono::seconds(20));

  // SIGTERM gives the job back; another worker takes it.
  const std::string slow = submit(small_job(2, 150));
  wait_for(slow, "running");
  one->signal(SIGTERM);
  EXPECT_EQ(one->wait(30).status, 128 + SIGTERM);
  EXPECT_EQ(job(slow)["state"], "queued");
  auto two = worker();
  EXPECT_EQ(wait_for(slow)["state"], "completed");
  two->signal(SIGTERM);
  two->wait(30);
}

// Serves images from an S3-compatible store, and another process reads what was uploaded there.
TEST_F(WorkerTest, ImagesMayBeInAnS3Store) {
  FakeS3 store;
  const S3Place place = store.place();
  variables_ = {{"AWS_ACCESS_KEY_ID", place.signer.access_key},
                {"AWS_SECRET_ACCESS_KEY", place.signer.secret_key},
                {"AWS_REGION", place.signer.region},
                {"AWS_ENDPOINT_URL", place.endpoint}};
  shared_ = {"--images", place.text()};
  serve();
  auto one = worker();
  Image photo(64, 64, 3);
  for (int x = 0; x < 64; ++x) photo.at(x, x)[0] = 255;
  const Json edited = wait_for(submit({{"kind", "edit"},
                                       {"prompt", "a blue circle"},
                                       {"seed", 3},
                                       {"steps", 2},
                                       {"references", {base64_encode(encode_png(photo))}}}));
  ASSERT_EQ(edited["state"], "completed") << edited.dump();
  size_t generated = 0, uploads = 0;
  std::string key;
  for (const auto& [name, object] : store.objects()) {
    if (name.starts_with("some/place/generated/")) ++generated, key = name;
    uploads += name.starts_with("some/place/uploads/");
    EXPECT_EQ(object.type, "image/png") << name;
  }
  EXPECT_EQ(generated, 1u);
  EXPECT_EQ(uploads, 1u);
  EXPECT_FALSE(fs::exists(folder_ / "data" / "generated"));

  const std::string path = "/api/v1/jobs/" + edited["id"].get<std::string>() + "/images/0";
  fs::remove_all(folder_ / "data" / "image-cache" / "files");  // so that the server fetches it
  fs::create_directories(folder_ / "data" / "image-cache" / "files");
  const HttpAnswer whole = send("GET", path), part = send("GET", path, nullptr, {{"range", "bytes=5-9"}});
  EXPECT_EQ(whole.body, store.objects().at(key).bytes);
  EXPECT_EQ(part.status, 206);
  EXPECT_EQ(part.body, whole.body.substr(5, 5));
  ASSERT_TRUE(whole.header("etag"));
  EXPECT_EQ(send("GET", path, nullptr, {{"if-none-match", *whole.header("etag")}}).status, 304);
  EXPECT_EQ(send("GET", path + "?thumb=1").status, 200);
  one->signal(SIGTERM);
  one->wait(30);

  variables_["AWS_ACCESS_KEY_ID"] = "another-key";
  const Finished refused = Subprocess(program("worker", "data", {})).wait(60);
  EXPECT_NE(refused.status, 0);
  EXPECT_THAT(refused.err, HasSubstr("AWS_SECRET_ACCESS_KEY"));
  EXPECT_EQ(refused.err.find("the-secret"), refused.err.npos);
}

class PostgresWorkers : public WorkerTest {
 protected:
  void SetUp() override {
    SKIP_WITHOUT_POSTGRES();
    if (!postgres_available()) GTEST_SKIP() << "this build has no PostgreSQL";
    WorkerTest::SetUp();
    // Each test has a database of its own.
    database_ = test_postgres().url("workers_" + std::to_string(::getpid()) + "_" + std::to_string(tests_++));
    shared_ = {"--database", database_, "--images", (folder_ / "images").string()};
  }
  void TearDown() override {
    if (!folder_.empty()) WorkerTest::TearDown();
  }

  std::unique_ptr<JobStore> open_queue() { return open_job_store(open_postgres(database_), kLease); }

  // The job that this process runs; waits until there is one.
  std::string job_of(const Subprocess& process, JobStore& queue) {
    const std::string mark = fmt::format("/{}/", process.pid());
    for (int i = 0; i < 3000; ++i, pause_ms(10))
      for (const Job& job : queue.list({.state = "running", .kind = {}, .project = {}, .before = {}, .limit = 100}))
        if (job.worker.find(mark) != job.worker.npos) return job.id;
    ADD_FAILURE() << "the worker runs nothing";
    return {};
  }

  // Every image has a row and every row an image; every job that is complete was completed once.
  void check_storage() {
    const auto database = open_postgres(database_);
    AssetStore assets(folder_ / "data", open_folder_blobs(folder_ / "images"), database);
    const AssetStore::Swept first = assets.sweep(0), second = assets.sweep(0);
    EXPECT_EQ(first.rows_missing, 0) << "a row without an image";
    EXPECT_EQ(second.files_removed, 0);
    size_t files = 0;
    for (const auto& file : fs::directory_iterator(folder_ / "images" / "generated")) files += file.is_regular_file();
    const auto rows = assets.list({.project = {}, .kind = "image", .job = {}, .before = {}, .limit = 1'000'000});
    EXPECT_EQ(files, rows.size());
    std::set<std::string> known;
    for (const Asset& asset : rows) known.insert(asset.id);
    const auto queue = open_queue();
    std::map<std::string, int> ended;
    for (const StoredEvent& event : queue->events_after(0))
      if (event.name == "job.completed") ++ended[parse_json(event.data)["job_id"].get<std::string>()];
    for (const auto& [id, times] : ended) EXPECT_EQ(times, 1) << id << " was completed more than once";
    for (const Job& job : queue->list({.state = {}, .kind = {}, .project = {}, .before = {}, .limit = 1'000'000})) {
      EXPECT_TRUE(job.is_final()) << job.id << " is " << job.state;
      EXPECT_TRUE(job.state != "completed" || job.images.size() == 1) << job.id;
      for (const JobImage& image : job.images)
        EXPECT_TRUE(known.contains(image.asset)) << job.id << " has an image without a row";
    }
    fmt::print("{} images, {} of them left behind by a kill; {} jobs were interrupted and retried\n", rows.size(),
               first.files_removed, interrupted_);
  }

  std::string database_;
  static inline int tests_ = 0;
};

TEST_F(PostgresWorkers, NothingIsLostWhenWorkersAndTheDatabaseFail) {
  const int count = number_of("FLUX2_WORKER_JOBS", 24);
  serve();
  std::vector<std::unique_ptr<Subprocess>> workers;
  for (int i = 0; i < 3; ++i) workers.push_back(worker(fmt::format("worker{}", i), {"--max-batch", "1"}));
  const auto queue = open_queue();

  // Clients that send the same request again if the database was away: the key makes that safe.
  std::mutex mutex;
  std::vector<std::string> ids;
  std::atomic<int> submitted = 0;
  std::vector<std::thread> clients;
  for (int c = 0; c < 3; ++c)
    clients.emplace_back([&, c] {
      for (int i = 0; submitted++ < count; ++i) {
        for (int attempt = 0; attempt < 100; ++attempt, pause_ms(200)) {
          const HttpAnswer answer =
              send("POST", "/api/v1/jobs", small_job(1000 * c + i, 20), {{"idempotency-key", fmt::format("{}-{}", c, i)}});
          if (answer.status != 202 && answer.status != 200) continue;
          const std::lock_guard lock(mutex);
          ids.push_back(parse_json(answer.body)["id"].get<std::string>());
          break;
        }
        pause_ms(30);
      }
    });

  // One worker is killed while it runs a job.
  const std::string killed = job_of(*workers[0], *queue);
  workers[0]->signal(SIGKILL);
  workers[0]->wait(10);

  // One is stopped for longer than its lease. Others give its job up; what it does after it goes on is refused.
  const std::string stopped = job_of(*workers[1], *queue);
  workers[1]->signal(SIGSTOP);
  const auto held = queue->get(stopped);
  ASSERT_TRUE(held);
  for (int i = 0; i < 1500 && !queue->get(stopped)->is_final(); ++i) pause_ms(10);
  const auto lost = queue->get(stopped);
  const bool was_running = held->state == "running";
  if (was_running) {
    EXPECT_EQ(lost->state, "failed");
    EXPECT_EQ(lost->error["code"], "interrupted");
  }
  workers[1]->signal(SIGCONT);

  // The database goes away while everybody works.
  test_postgres().restart();

  for (std::thread& client : clients) client.join();
  ASSERT_EQ(ids.size(), static_cast<size_t>(count)) << "a submission was lost";
  EXPECT_EQ(std::set<std::string>(ids.begin(), ids.end()).size(), ids.size());
  for (const std::string& id : ids) expect_completed(id);
  if (was_running) {
    const auto after = queue->get(stopped);
    EXPECT_EQ(after->state, "failed") << "the late result of a stopped worker was accepted";
    EXPECT_EQ(after->images.size(), lost->images.size());
    EXPECT_EQ(after->finished, lost->finished);
  }
  EXPECT_GE(interrupted_, 1);
  const std::string last = submit(small_job(77, 40));
  expect_completed(last);
  for (int i : {1, 2}) {
    workers[static_cast<size_t>(i)]->signal(SIGTERM);
    EXPECT_EQ(workers[static_cast<size_t>(i)]->wait(30).status, 128 + SIGTERM) << "a worker did not survive";
  }
  server_->signal(SIGTERM);
  server_->wait(30);
  check_storage();
}

TEST_F(PostgresWorkers, AServerThatIsKilledLosesNothing) {
  const int kills = number_of("FLUX2_KILLS", 3);
  std::mt19937 random(11);
  std::set<std::string> ids;
  for (int k = 0; k < kills && !HasFatalFailure(); ++k) {
    serve({});
    std::atomic<bool> ended = false;
    std::mutex mutex;
    std::vector<std::thread> clients;
    for (int c = 0; c < 3; ++c)
      clients.emplace_back([&, c] {
        for (int i = 0; !ended; ++i, pause_ms(20)) {
          const HttpAnswer answer = send("POST", "/api/v1/jobs", small_job(100'000 * k + 1000 * c + i));
          if (answer.status != 202) continue;
          const std::lock_guard lock(mutex);
          ids.insert(parse_json(answer.body)["id"].get<std::string>());
        }
      });
    pause_ms(50 + static_cast<int64_t>(random() % 600));
    server_->signal(SIGKILL);
    ended = true;
    for (std::thread& client : clients) client.join();
    server_->wait(10);
  }
  serve({});
  for (const std::string& id : ids) expect_completed(id);
  ASSERT_GT(ids.size(), static_cast<size_t>(kills));
  server_->signal(SIGTERM);
  server_->wait(30);
  check_storage();
}

}  // namespace
}  // namespace flux2::test
