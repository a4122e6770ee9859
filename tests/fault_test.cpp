// If the N-th write, rename, allocation … of a command fails, the command ends with an error message or succeeds, and never
// leaves a wrong file. FLUX2_FAULTS=all tries every N (for allocations, one N per call stack); without it, a few of each kind are
// tried.
#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include "tests/support/jobs.h"

namespace flux2::test {
namespace {

constexpr double kLongestRun = 60;   // seconds; a run that takes longer waits for something that never happens
constexpr size_t kSample = 3;        // points of each kind in the fast suite
constexpr size_t kFinishEvery = 25;  // after every 25th allocation, the next run is checked too

struct FaultCase {
  std::string job, kind;
  bool all_later = false;
};

void PrintTo(const FaultCase& c, std::ostream* to) { *to << c.job << " " << c.kind << (c.all_later ? "+" : ""); }

std::vector<FaultCase> cases() {
  std::vector<FaultCase> all;
  for (const std::string job : {"convert", "series", "generate", "merge", "install"}) {
    for (const char* kind : {"write", "short", "fsync", "rename", "mmap", "thread", "malloc"}) all.push_back({job, kind});
    for (const char* kind : {"write", "thread"}) all.push_back({job, kind, true});  // a full disk, a limit on processes
  }
  return all;
}

class Fault : public JobTest, public testing::WithParamInterface<FaultCase> {
 protected:
  Start with_fault(const Job& job, const std::string& fault) const {
    Start s = start_of(job);
    s.environment["LD_PRELOAD"] = fault_library();
    s.environment["FLUX2_FAULT"] = fault;
    s.environment["FLUX2_FAULT_TRACE"] = "1";  // says where a crash comes from
    return s;
  }

  // The calls at which a fault is tried: all, or those from new places.
  std::vector<long> points(const Job& job, const std::string& kind) {
    begin_anew();
    Start s = with_fault(job, kind + ":0");
    s.environment["FLUX2_FAULT_COUNT"] = (folder_ / "count").string();
    const Finished done = run(s, 10 * kLongestRun);
    EXPECT_EQ(done.status, 0) << done.err;
    std::istringstream lines(bytes("count"));
    std::vector<long> numbers;
    for (long n; lines >> n;) numbers.push_back(n);
    if (numbers.empty()) return {};
    const long count = numbers.back();
    numbers.pop_back();
    if (kind == "malloc") return numbers;
    for (long n = 1; n <= count; ++n) numbers.push_back(n);
    return numbers;
  }
};

std::vector<long> sample_of(const std::vector<long>& all) {
  if (const char* wish = std::getenv("FLUX2_FAULTS"); wish && std::string(wish) == "all") return all;
  if (all.size() <= kSample) return all;
  std::vector<long> some;
  for (size_t i = 0; i < kSample; ++i) some.push_back(all[i * (all.size() - 1) / (kSample - 1)]);
  return some;
}

TEST_P(Fault, EndsWithASentenceOrSuccess) {
  const FaultCase& c = GetParam();
  const Job failing = job(c.job);
  learn(failing);
  if (HasFatalFailure()) return;
  const std::vector<long> all = points(failing, c.kind);
  size_t tried = 0, succeeded = 0;
  for (const long n : sample_of(all)) {
    const std::string fault = c.kind + ":" + std::to_string(n) + (c.all_later ? "+" : "");
    begin_anew();
    const Finished done = run(with_fault(failing, fault), kLongestRun);
    ++tried;
    succeeded += done.status == 0 ? 1 : 0;
    EXPECT_FALSE(done.timed_out) << fault << " waits for ever: " << done.err;
    EXPECT_TRUE(done.status == 0 || (done.status > 1 && done.status < 10)) << fault << ": status " << done.status << "\n"
                                                                           << done.err;
    if (done.status == 0) {
      EXPECT_EQ(problem_after_success(failing, done), "") << fault;
      continue;
    }
    EXPECT_NE(done.err.find("flux2: "), std::string::npos) << fault << ": no sentence\n" << done.err;
    EXPECT_EQ(problem_after_interruption(failing, true), "") << fault << "\n" << done.err;
    if (c.kind == "malloc" && tried % kFinishEvery != 1) continue;
    EXPECT_EQ(problem_after_success(failing, run(start_of(failing), kLongestRun)), "") << "the run after " << fault;
  }
  RecordProperty("points", static_cast<int>(all.size()));
  RecordProperty("tried", static_cast<int>(tried));
  std::printf("%s %s%s: %zu points, %zu tried, %zu succeeded all the same\n", c.job.c_str(), c.kind.c_str(),
              c.all_later ? "+" : "", all.size(), tried, succeeded);
}

// The iterators over folders of libstdc++ 12 end the program when they get no memory, whatever the caller catches.
class MemoryInLibraries : public Fault {};

TEST_P(MemoryInLibraries, EndsWithASentence) {
  const Job failing = job(GetParam().job);
  learn(failing);
  if (HasFatalFailure()) return;
  int failed = 0;
  for (int n = 1; n <= 10; ++n) {
    begin_anew();
    Start s = with_fault(failing, "malloc:" + std::to_string(n));
    s.environment["FLUX2_FAULT_CALLER"] = "directory_iterator";
    const Finished done = run(s, kLongestRun);
    if (done.status == 0) break;
    ++failed;
    EXPECT_EQ(done.status, 5) << n << ": " << done.err;
    EXPECT_NE(done.err.find("flux2: not enough memory"), std::string::npos) << n << ": " << done.err;
    EXPECT_EQ(problem_after_interruption(failing, true), "") << n;
  }
  EXPECT_GT(failed, 0);
}

INSTANTIATE_TEST_SUITE_P(Folders, MemoryInLibraries, testing::Values(FaultCase{"generate", "malloc"}),
                         [](const auto& test) { return test.param.job; });

INSTANTIATE_TEST_SUITE_P(Calls, Fault, testing::ValuesIn(cases()), [](const auto& test) {
  return test.param.job + "_" + test.param.kind + (test.param.all_later ? "_and_later" : "");
});

}  // namespace
}  // namespace flux2::test
