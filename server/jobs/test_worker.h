#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "server/jobs/job_request.h"
#include "server/jobs/worker.h"
#include "server/store/ids.h"
#include "server/store/sql_store.h"
#include "server/store/test_folder.h"
#include "tests/support/paths.h"

namespace flux2 {

// A worker and its queue, as in a server, with the bundled model and a data folder of the test's own.
class WorkerTest : public testing::Test {
 protected:
  using Values = std::initializer_list<std::pair<const char*, const char*>>;

  explicit WorkerTest(Values more = {}) : defaults_(exact_settings(more)) {
    context_.environment = [home = folder_.string(), pico = test::pico_folder().string()](const char* name) {
      const std::string_view wanted = name;
      return wanted == "FLUX2_HOME" ? home.c_str() : wanted == "FLUX2_BUNDLED" ? pico.c_str() : nullptr;
    };
  }
  void TearDown() override { worker_.reset(); }  // it uses members of the tests

  // Of a server that computes the same on every machine, on one thread.
  static Settings exact_settings(Values more) {
    SettingLayer layer;
    layer["profile"] = {{"exact"}, "test"};
    layer["threads"] = {{"1"}, "test"};
    for (const auto& [name, value] : more) layer[name] = {{value}, "test"};
    Settings settings;
    settings.add(std::move(layer));
    return settings;
  }

  void start(WorkerOptions options = {}) {
    if (options.name.empty()) options.name = new_id();
    worker_ = std::make_unique<Worker>(context_, defaults_, queue_, std::move(options));
    worker_->start();
  }

  // Queues an image of 64x64 pixels and returns the id of its job.
  std::string queue_image(const Json& members) {
    Json body = {{"prompt", "a circle"}, {"width", 64}, {"height", 64}};
    body.update(members);
    std::vector<std::string> warnings;
    return queue_.submit({.request = check_job_request(body, "generate", assets_, context_, warnings)}).job.id;
  }

  // Waits until the job has ended.
  Job finished(const std::string& id) {
    for (int i = 0; i < 24000; ++i, std::this_thread::sleep_for(std::chrono::milliseconds(10)))
      if (const auto job = store_->get(id); job && job->is_final()) return *job;
    ADD_FAILURE() << "the job does not end";
    return {};
  }

  std::filesystem::path folder_ = server_test_folder();
  Settings defaults_;
  AppContext context_;
  std::unique_ptr<JobStore> store_ = open_sqlite_store(folder_ / "flux2.db");
  AssetStore assets_{folder_};
  Events events_{*store_};
  JobQueue queue_{*store_, assets_, events_, 100};
  std::unique_ptr<Worker> worker_;
};

}  // namespace flux2
