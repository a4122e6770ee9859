#include "train/ranks/local_ranks.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/error.h"

namespace flux2 {
namespace {

namespace fs = std::filesystem;

fs::path ranks_folder(const char* name) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("flux2-ranks-{}-{}", ::getpid(), name);
  fs::remove_all(folder);
  fs::create_directories(folder);
  return folder;
}

std::string content(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), {}};
}

void wait_for_file(const fs::path& file) {
  for (int i = 0; i < 500 && content(file).empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

TEST(LocalRanks, AreStartedWithTheirEnvironment) {
  const fs::path folder = ranks_folder("environment");
  const auto ranks = start_local_ranks(
      {"/bin/sh", "-c", "echo $RANK $WORLD_SIZE $LOCAL_RANK $MASTER_ADDR $MASTER_PORT $FLUX2_RANK_TOKEN $0 > $1/$RANK", "word",
       folder},
      3);
  ranks->wait();
  EXPECT_EQ(ranks->place().rank, 0);
  EXPECT_EQ(ranks->place().size, 3);
  EXPECT_EQ(ranks->place().token.size(), 32u);
  for (int r = 1; r < 3; ++r)
    EXPECT_EQ(content(folder / std::to_string(r)),
              fmt::format("{0} 3 {0} 127.0.0.1 {1} {2} word\n", r, ranks->place().port, ranks->place().token));
  fs::remove_all(folder);
}

TEST(LocalRanks, AFailedRankIsNamed) {
  const auto message = [](const char* script) -> std::string {
    const auto ranks = start_local_ranks({"/bin/sh", "-c", script}, 3);
    try {
      ranks->wait();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_EQ(message("test $RANK = 1 || exit 3"), "rank 2 ended with status 3");
  EXPECT_EQ(message("test $RANK = 2 || kill -9 $$"), "rank 1 was killed by signal 9 (Killed)");
  EXPECT_EQ(message("true"), "no error");
}

TEST(LocalRanks, GetSignalsAndEndWithTheirOwner) {
  const fs::path folder = ranks_folder("signals");
  const auto begun = std::chrono::steady_clock::now();
  {
    const auto ranks = start_local_ranks(
        {"/bin/sh", "-c", "trap 'echo got > $0/got' USR1; echo $$ > $0/pid; while true; do sleep 0.05; done", folder}, 2);
    wait_for_file(folder / "pid");
    ranks->forward(SIGUSR1);
    wait_for_file(folder / "got");
    EXPECT_EQ(content(folder / "got"), "got\n");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(30));
  EXPECT_NE(::kill(static_cast<pid_t>(std::stol(content(folder / "pid"))), 0), 0) << "the rank still runs";
  fs::remove_all(folder);
}

}  // namespace
}  // namespace flux2
