// A command that is killed at any moment leaves no incomplete file under a final name, and the next run cleans up after it.
// FLUX2_KILLS=100 kills each command 100 times; without it, 10 times.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/support/jobs.h"

namespace flux2::test {
namespace {

using Clock = std::chrono::steady_clock;

int kills() {
  const char* text = std::getenv("FLUX2_KILLS");
  return text ? std::atoi(text) : 10;
}

class Kill : public JobTest, public testing::WithParamInterface<std::string> {
 public:
  static const std::vector<std::string>& all() { return names(); }
};

TEST_P(Kill, NextRunFinishesAndLeavesNothing) {
  const Job killed = job(GetParam());
  learn(killed);
  if (HasFatalFailure()) return;
  begin_anew();
  const auto began = Clock::now();
  ASSERT_EQ(run(start_of(killed)).status, 0);
  int64_t whole = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - began).count();

  std::mt19937 random(5);
  int in_time = 0;
  for (int i = 0; i < kills(); ++i) {
    begin_anew();
    {
      Subprocess process(start_of(killed));
      const int64_t moment = std::uniform_int_distribution<int64_t>(1, whole)(random);
      std::this_thread::sleep_for(std::chrono::microseconds(moment));
      process.signal(SIGKILL);
      if (process.wait().status == 128 + SIGKILL) ++in_time;
      else whole = std::max<int64_t>(moment, 1000);  // the machine was slower when the whole run was measured
    }
    ASSERT_EQ(problem_after_interruption(killed, false), "") << "kill " << i;
    ASSERT_EQ(problem_after_success(killed, run(start_of(killed))), "") << "the run after kill " << i;
  }
  EXPECT_GE(in_time, kills() / 4) << "most moments lie before the end";
  RecordProperty("killed", in_time);
}

INSTANTIATE_TEST_SUITE_P(Jobs, Kill, testing::ValuesIn(Kill::all()), [](const auto& test) { return test.param; });

// Several processes that number their images in one folder do not overwrite each other's images.
class Processes : public JobTest {};

TEST_F(Processes, DoNotOverwriteEachOthersPictures) {
  const Job pictures = job("generate");
  begin_anew();
  constexpr int kProcesses = 4;
  {
    std::vector<std::unique_ptr<Subprocess>> processes;
    for (int i = 0; i < kProcesses; ++i) processes.push_back(std::make_unique<Subprocess>(start_of(pictures)));
    for (auto& process : processes) {
      const Finished done = process->wait();
      EXPECT_EQ(done.status, 0) << done.err;
    }
  }
  EXPECT_EQ(files_in("out"), 2u * kProcesses);
}

}  // namespace
}  // namespace flux2::test
