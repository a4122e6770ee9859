// Installations of models through the queue, from a hub on loopback.
#include "server/jobs/model_installs.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "app/registry_access.h"
#include "server/http/errors.h"
#include "server/jobs/model_tasks.h"
#include "server/store/ids.h"
#include "server/store/sql_store.h"
#include "server/store/test_folder.h"
#include "tests/support/fake_hub.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;
using test::FakeHub;

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Installs : public testing::Test {
 protected:
  explicit Installs(std::map<std::string, FakeHub::File> files = pico_files())
      : folder_(server_test_folder()),
        hub_(std::move(files)),
        home_(folder_.string()),
        hub_home_((folder_ / "hub").string()),
        endpoint_(hub_.endpoint()),
        store_(open_sqlite_store(folder_ / "flux2.db")),
        assets_(folder_),
        events_(*store_),
        queue_(*store_, assets_, events_, 100),
        installs_(app_, queue_, AllowedFolders({folder_ / "allowed", folder_ / "training"})),
        worker_(app_, queue_, {.name = "w/net", .lane = "net", .threads = 2}) {
    app_.environment = [this](const char* name) -> const char* {
      const std::string_view wanted(name);
      return wanted == "FLUX2_HOME"    ? home_.c_str()
             : wanted == "HF_HOME"     ? hub_home_.c_str()
             : wanted == "HF_ENDPOINT" ? endpoint_.c_str()
                                       : nullptr;
    };
    fs::create_directories(folder_ / "allowed");
    worker_.add("download", [this](RunningTask& task) { installs_.run(task); });
    listener_ = events_.listen([this](const Event& event) {
      const std::lock_guard lock(mutex_);
      told_.push_back(event.name);
    });
  }
  ~Installs() override {
    worker_.stop();
    events_.leave(listener_);
  }

  static std::map<std::string, FakeHub::File> pico_files() {
    const fs::path pico = test::pico_folder();
    return {{"ae.safetensors", {.content = bytes_of(pico / "ae.safetensors")}},
            {"README.md", {.content = "read me", .large = false}}};
  }
  Json wait_for(const std::string& id, const std::string& state) {
    Json install;
    for (int i = 0; i < 600; ++i) {
      install = installs_.show(id);
      if (install["state"] == state) return install;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ADD_FAILURE() << "it is still " << install.dump();
    return install;
  }
  bool was_told(const std::string& name) {
    const std::lock_guard lock(mutex_);
    return std::find(told_.begin(), told_.end(), name) != told_.end();
  }
  int status_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const HttpError& e) {
      return e.status;
    }
    return 200;
  }

  fs::path folder_;
  FakeHub hub_;
  std::string home_, hub_home_, endpoint_;
  AppContext app_;
  std::unique_ptr<JobStore> store_;
  AssetStore assets_;
  Events events_;
  JobQueue queue_;
  ModelInstalls installs_;
  TaskWorker worker_;
  int64_t listener_ = 0;
  std::mutex mutex_;
  std::vector<std::string> told_;
};

TEST_F(Installs, DownloadsFromTheHubAndRegisters) {
  worker_.start();
  const Json started = installs_.start({{"source", FakeHub::kRepository}, {"name", "small"}});
  EXPECT_EQ(started["id"].get<std::string>().substr(0, 4), "ins_");
  const Json done = wait_for(started["id"], "completed");
  ASSERT_TRUE(done["model_key"].is_string()) << done.dump();
  EXPECT_EQ(done["bytes"], done["total"]);
  ASSERT_EQ(done["files"].size(), 1u);
  EXPECT_EQ(done["files"][0]["path"], "ae.safetensors");
  EXPECT_EQ(done["files"][0]["state"], "completed");
  const auto record = open_registry(app_).find(done["model_key"].get<std::string>());
  ASSERT_TRUE(record);
  EXPECT_EQ(record->name, "small");
  EXPECT_EQ(record->type, ModelType::Vae);
  EXPECT_TRUE(was_told("install.progress"));
  EXPECT_TRUE(was_told("install.completed"));
  EXPECT_EQ(installs_.list().size(), 1u);
  EXPECT_EQ(status_of([&] { installs_.resume(done["id"]); }), 409);
  EXPECT_EQ(installs_.prune(), 1);
  EXPECT_EQ(installs_.list().size(), 0u);
  EXPECT_EQ(status_of([&] { installs_.show(done["id"]); }), 404);
}

TEST_F(Installs, PausesAndGoesOnWithTheMissingBytes) {
  hub_.storage_bytes_per_s = 2e6;  // about two seconds with its four connections
  worker_.start();
  const std::string id = installs_.start({{"source", FakeHub::kRepository}})["id"];
  for (int i = 0; i < 200 && installs_.show(id)["bytes"] == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(installs_.pause(id)["state"], "paused");
  for (int i = 0; i < 200 && !store_->get(id.substr(4))->is_final(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(installs_.show(id)["state"], "paused");
  const uint64_t before = hub_.storage().body_bytes_sent();
  hub_.storage_bytes_per_s = 0;
  EXPECT_EQ(installs_.resume(id)["id"], id);
  const Json done = wait_for(id, "completed");
  EXPECT_TRUE(done["model_key"].is_string());
  EXPECT_LT(hub_.storage().body_bytes_sent() - before, done["total"].get<uint64_t>()) << "what was there was not asked for again";
  EXPECT_EQ(installs_.list().size(), 1u) << "both jobs are one installation";
}

// Another server process with the same database, which does not run the job.
class InstallsOfTwoProcesses : public Installs {
 protected:
  // Waits until the bytes of a download can be seen there.
  void wait_for_bytes(const std::string& id) {
    for (int i = 0; i < 200 && elsewhere_.show(id)["bytes"] == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  void wait_for_the_end(const std::string& job) {
    for (int i = 0; i < 200 && !store_->get(job)->is_final(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  std::unique_ptr<JobStore> other_store_ = open_sqlite_store(folder_ / "flux2.db");
  AssetStore other_assets_{folder_};
  Events other_events_{*other_store_};
  JobQueue other_queue_{*other_store_, other_assets_, other_events_, 100};
  ModelInstalls elsewhere_{app_, other_queue_, AllowedFolders({folder_ / "allowed"})};
};

TEST_F(InstallsOfTwoProcesses, APauseAndAResumeReachTheProcessThatDownloads) {
  hub_.storage_bytes_per_s = 5e5;
  worker_.start();
  const std::string id = installs_.start({{"source", FakeHub::kRepository}})["id"];
  wait_for_bytes(id);
  EXPECT_EQ(elsewhere_.pause(id)["state"], "paused");
  EXPECT_EQ(installs_.show(id)["state"], "paused") << "every process knows";
  wait_for_the_end(id.substr(4));
  EXPECT_EQ(store_->get(id.substr(4))->state, "cancelled") << "the process that downloaded has stopped";
  EXPECT_EQ(installs_.show(id)["state"], "paused");
  EXPECT_EQ(elsewhere_.show(id)["state"], "paused");

  const uint64_t before = hub_.storage().body_bytes_sent();
  hub_.storage_bytes_per_s = 0;
  EXPECT_EQ(elsewhere_.resume(id)["id"], id);
  const Json done = wait_for(id, "completed");
  EXPECT_TRUE(done["model_key"].is_string());
  EXPECT_LT(hub_.storage().body_bytes_sent() - before, done["total"].get<uint64_t>()) << "what was there was not asked for again";
}

TEST_F(InstallsOfTwoProcesses, ProgressIsSeenInBoth) {
  hub_.storage_bytes_per_s = 5e5;
  worker_.start();
  const std::string id = installs_.start({{"source", FakeHub::kRepository}})["id"];
  wait_for_bytes(id);
  const Json seen = elsewhere_.show(id);
  EXPECT_GT(seen["bytes"], 0);
  EXPECT_GT(seen["total"], seen["bytes"]);
  ASSERT_EQ(seen["files"].size(), 1u);
  EXPECT_EQ(seen["files"][0]["path"], "ae.safetensors");
  elsewhere_.cancel(id);
  wait_for_the_end(id.substr(4));
  EXPECT_EQ(installs_.show(id)["state"], "cancelled");
}

TEST_F(Installs, APauseIsKeptIfTheProcessIsKilled) {
  const std::string id = installs_.start({{"source", FakeHub::kRepository}})["id"], job = id.substr(4);
  // What is left of a process that was killed: a job that runs, and whose lease nobody renews.
  const int64_t then = now_ms() - 3'600'000;
  ASSERT_TRUE(store_->claim("net", "killed/net", {}, then));
  EXPECT_EQ(installs_.pause(id)["state"], "paused");
  ASSERT_EQ(store_->recover(now_ms()).size(), 1u);
  ASSERT_EQ(store_->get(job)->state, "failed");
  const Json after = installs_.show(id);
  EXPECT_EQ(after["state"], "paused");
  EXPECT_TRUE(after["error"].is_null()) << after.dump();
  EXPECT_EQ(installs_.prune(), 0) << "paused ones stay";

  worker_.start();
  EXPECT_EQ(installs_.resume(id)["id"], id);
  EXPECT_TRUE(wait_for(id, "completed")["model_key"].is_string());
  EXPECT_EQ(installs_.list().size(), 1u);
}

TEST_F(Installs, ACancelledOneIsNoErrorIfTheProcessIsKilled) {
  const std::string id = installs_.start({{"source", FakeHub::kRepository}})["id"];
  ASSERT_TRUE(store_->claim("net", "killed/net", {}, now_ms() - 3'600'000));
  EXPECT_EQ(installs_.cancel(id)["state"], "cancelled");
  ASSERT_EQ(store_->recover(now_ms()).size(), 1u);
  EXPECT_EQ(installs_.show(id)["state"], "cancelled");
  EXPECT_EQ(installs_.prune(), 1);
}

// Without a pause, the same is an error that says what happened.
TEST_F(Installs, AnInterruptedInstallationCanBeResumed) {
  const std::string id = installs_.start({{"source", FakeHub::kRepository}})["id"];
  ASSERT_TRUE(store_->claim("net", "killed/net", {}, now_ms() - 3'600'000));
  ASSERT_EQ(store_->recover(now_ms()).size(), 1u);
  EXPECT_EQ(installs_.show(id)["state"], "error");
  EXPECT_EQ(installs_.show(id)["error"]["code"], "interrupted");
  worker_.start();
  installs_.resume(id);
  wait_for(id, "completed");
}

// The job may take a while to end after a pause. A resume in between is not refused.
TEST_F(Installs, APauseThatIsTakenBackAtOnceGoesOn) {
  hub_.storage_bytes_per_s = 2e6;
  worker_.start();
  const std::string id = installs_.start({{"source", FakeHub::kRepository}})["id"];
  for (int i = 0; i < 200 && installs_.show(id)["bytes"] == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(installs_.pause(id)["state"], "paused");
  EXPECT_EQ(installs_.resume(id)["id"], id);
  hub_.storage_bytes_per_s = 0;
  EXPECT_TRUE(wait_for(id, "completed")["model_key"].is_string());
  EXPECT_EQ(store_->get(id.substr(4))->state, "cancelled") << "the first job ended by the pause";
}

TEST_F(Installs, APauseBeforeTheBeginningSurvivesARestart) {
  // No worker runs yet, so the installations wait.
  const std::string paused = installs_.start({{"source", FakeHub::kRepository}, {"name", "first"}})["id"];
  const std::string cancelled = installs_.start({{"source", FakeHub::kRepository}, {"name", "second"}})["id"];
  EXPECT_EQ(installs_.pause(paused)["state"], "paused");
  EXPECT_EQ(installs_.pause(cancelled)["state"], "paused");
  EXPECT_EQ(installs_.cancel(cancelled)["state"], "cancelled");

  ModelInstalls restarted(app_, queue_, AllowedFolders({folder_ / "allowed"}));  // knows only what is in the database
  worker_.start();
  const std::string other = restarted.start({{"source", "nobody/nothing"}})["id"];
  wait_for(other, "error");  // the worker has looked at everything that waits
  EXPECT_EQ(restarted.show(paused)["state"], "paused");
  EXPECT_EQ(restarted.show(cancelled)["state"], "cancelled");
  EXPECT_EQ(hub_.storage().body_bytes_sent(), 0u) << "nothing was downloaded";
  EXPECT_EQ(restarted.list().size(), 3u);

  EXPECT_EQ(installs_.resume(paused)["id"], paused);
  EXPECT_TRUE(wait_for(paused, "completed")["model_key"].is_string());
}

TEST_F(Installs, OneFileIsDownloadedFromItsFirstByte) {
  worker_.start();
  const std::string id = installs_.start({{"source", FakeHub::kRepository}})["id"];
  wait_for(id, "completed");
  EXPECT_EQ(status_of([&] { installs_.restart_file(id, "nothing"); }), 404);
  const uint64_t before = hub_.storage().body_bytes_sent();
  installs_.restart_file(id, "ae.safetensors");
  const Json done = wait_for(id, "completed");
  EXPECT_GE(hub_.storage().body_bytes_sent() - before, done["total"].get<uint64_t>());
}

TEST_F(Installs, CancelAndErrors) {
  hub_.storage_bytes_per_s = 1e5;
  worker_.start();
  const std::string id = installs_.start({{"source", FakeHub::kRepository}})["id"];
  wait_for(id, "downloading");
  installs_.cancel(id);
  for (int i = 0; i < 200 && !store_->get(id.substr(4))->is_final(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(installs_.show(id)["state"], "cancelled");

  const std::string missing = installs_.start({{"source", "nobody/nothing"}})["id"];
  const Json failed = wait_for(missing, "error");
  EXPECT_FALSE(failed["error"]["message"].get<std::string>().empty());
  EXPECT_TRUE(was_told("install.error"));

  EXPECT_THROW(installs_.start({{"source", "owner/model"}, {"in_place", true}}), HttpError);
  EXPECT_THROW(installs_.start({{"source", "what is this?"}}), HttpError);
  EXPECT_THROW(installs_.start({{"source", 5}}), HttpError);
  EXPECT_THROW(installs_.start({{"sauce", "owner/model"}}), HttpError);
}

TEST_F(Installs, PathsOnlyBelowAllowedFolders) {
  worker_.start();
  const fs::path here = folder_ / "allowed/ae.safetensors";
  fs::copy_file(fs::path(test::pico_folder()) / "ae.safetensors", here);
  const Json done = wait_for(installs_.start({{"source", here.string()}, {"in_place", true}})["id"], "completed");
  EXPECT_EQ(open_registry(app_).find(done["model_key"].get<std::string>())->path, fs::canonical(here));

  const auto refusal = [&](const std::string& source) {
    try {
      installs_.start({{"source", source}});
    } catch (const HttpError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  const std::string there = refusal((fs::path(test::pico_folder()) / "ae.safetensors").string());
  EXPECT_EQ(there, refusal("/no/such/file")) << "an answer must not say what exists";
  EXPECT_EQ(there, refusal((folder_ / "allowed/../flux2.db").string()));
  fs::create_symlink(test::pico_folder(), folder_ / "allowed/link");
  EXPECT_EQ(there, refusal((folder_ / "allowed/link/ae.safetensors").string()));
  EXPECT_NE(there, "accepted");
}

// A client knows the name of a checkpoint, but not where the server keeps it.
TEST_F(Installs, ACheckpointOfARunIsRegisteredByItsName) {
  const fs::path tried = folder_ / "training" / "tried";
  fs::create_directories(tried);
  fs::copy_file(fs::path(test::pico_folder()) / "ae.safetensors", tried / "cats@40.safetensors");
  worker_.start();
  const Json done =
      wait_for(installs_.start({{"source", "run:cats@40"}, {"name", "cats"}, {"in_place", true}})["id"], "completed");
  EXPECT_EQ(done["name"], "cats");
  EXPECT_THROW(installs_.start({{"source", "run:cats@41"}}), Error);
  EXPECT_THROW(installs_.start({{"source", "run:cats@40:0.5"}}), HttpError);
  EXPECT_THROW(installs_.start({{"source", "run:../x@40"}}), Error);
  EXPECT_THROW(installs_.start({{"source", "training/tried/cats@40.safetensors"}, {"in_place", true}}), HttpError);
}

TEST_F(Installs, ModelsAreCheckedAndConvertedAsJobs) {
  const fs::path here = folder_ / "allowed/ae.safetensors";
  fs::copy_file(fs::path(test::pico_folder()) / "ae.safetensors", here);
  TaskWorker cpu(app_, queue_, {.name = "w/cpu", .lane = "cpu", .threads = 1});
  cpu.add("verify", run_verify);
  cpu.add("convert", run_convert_task);
  cpu.start();
  worker_.start();
  const std::string key =
      wait_for(installs_.start({{"source", here.string()}, {"in_place", true}})["id"], "completed")["model_key"];
  const auto finished = [&](const JobQueue::Submission& submission) {
    const std::string id = queue_.submit(submission).job.id;
    for (int i = 0; i < 600 && !store_->get(id)->is_final(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return *store_->get(id);
  };
  const Job checked = finished(verify_submission({{"keys", {key}}}, app_));
  EXPECT_EQ(checked.state, "completed") << checked.error.dump();
  ASSERT_EQ(checked.result["items"].size(), 1u);
  EXPECT_EQ(checked.result["items"][0]["state"], "ready");
  EXPECT_EQ(checked.result["items"][0]["sha256"].get<std::string>().size(), 64u);

  const Job converted = finished(convert_submission(key, {{"quant", "bf16"}, {"to", "diffusers"}, {"name", "half"}}, app_));
  EXPECT_EQ(converted.state, "completed") << converted.error.dump();
  const auto record = open_registry(app_).find("half");
  ASSERT_TRUE(record);
  EXPECT_EQ(record->key, converted.result["model_key"].get<std::string>());
  EXPECT_TRUE(fs::exists(folder_ / "models/vae/half.safetensors"));
  EXPECT_THROW(convert_submission(key, {{"quant", "q99"}}, app_), HttpError);
  EXPECT_THROW(convert_submission(key, {{"name", "half"}}, app_), HttpError);
  EXPECT_THROW(convert_submission("nothing", Json::object(), app_), HttpError);
  EXPECT_THROW(verify_submission({{"keys", {"nothing"}}}, app_), HttpError);
}

}  // namespace
}  // namespace flux2
