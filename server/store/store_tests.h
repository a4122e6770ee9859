#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "server/store/ids.h"
#include "server/store/job_store.h"
#include "server/store/test_folder.h"

// What every JobStore must do: job_store_test.cpp. A test file instantiates StoreTest with a way to open the store in a folder;
// two stores that are opened in one folder share their jobs.
namespace flux2 {

struct StoreKind {
  std::string name;
  std::function<std::unique_ptr<JobStore>(const std::filesystem::path& folder)> open;
  std::function<std::string()> missing = [] { return std::string(); };  // why it cannot be tested here
};

class StoreTest : public ::testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    if (const std::string why = GetParam().missing(); !why.empty()) GTEST_SKIP() << why;
  }

  std::unique_ptr<JobStore> open() const { return GetParam().open(folder_); }

  static Job made(const std::string& kind = "generate") {
    Job job;
    job.id = new_id();
    job.kind = kind;
    job.request = {{"kind", kind}, {"prompt", "a fox"}};
    job.request_hash = "hash";
    job.created = now_ms();
    return job;
  }

  static Job added(JobStore& store, const std::function<void(Job&)>& change = {}) {
    Job job = made();
    if (change) change(job);
    return store.insert(job, 1000).job;
  }

  static std::vector<std::string> ids_of(const std::vector<Job>& jobs) {
    std::vector<std::string> ids;
    for (const Job& job : jobs) ids.push_back(job.id);
    return ids;
  }

  template <class F>
  static ErrorCode code_of(F&& f) {
    try {
      f();
    } catch (const Error& e) {
      return e.code();
    }
    return ErrorCode::Internal;  // which no test expects
  }

  std::filesystem::path folder_ = server_test_folder();
};

}  // namespace flux2
