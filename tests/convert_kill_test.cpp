// A conversion that is killed at any moment leaves nothing under the names of its files, and the same command finishes it.
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <random>
#include <thread>

#include "tests/support/paths.h"
#include "tests/support/program.h"

namespace flux2::test {
namespace {

constexpr int kKills = 20;

struct ConvertKill : Cli {
  const std::string source = test::golden_folder() / "tiny/flux-2-klein-tiny.safetensors";

  std::map<std::string, std::string> contents_of(const std::string& name) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::recursive_directory_iterator(folder_ / name))
      if (entry.is_regular_file()) files[fs::relative(entry.path(), folder_ / name).string()] = read_text_file(entry.path());
    return files;
  }
};

TEST_F(ConvertKill, ResumesAfterKill) {
  // One file, and a series, of which each finished file is kept for the next attempt.
  const std::vector<std::vector<std::string>> kinds = {{"--quant", "q4_k", "-o", "out/x.gguf"},
                                                       {"--quant", "nvfp4", "--shard-size", "0.001", "-o", "out/series"}};
  std::mt19937 random(5);
  int killed = 0;
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    std::vector<std::string> words = {"convert", source, "--threads", "1"};
    words.insert(words.end(), kinds[kind].begin(), kinds[kind].end());
    const auto begin_anew = [&] {
      fs::remove_all(folder_ / "out");
      fs::create_directories(folder_ / "out");
    };
    begin_anew();
    const auto began = std::chrono::steady_clock::now();
    ASSERT_EQ(flux2(words).status, 0);
    const auto whole = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - began).count();
    const auto expected = contents_of("out");
    ASSERT_FALSE(expected.empty());
    for (int i = 0; i < kKills / 2; ++i) {
      begin_anew();
      Subprocess process(start(words));
      std::this_thread::sleep_for(std::chrono::milliseconds(std::uniform_int_distribution<int64_t>(1, whole * 3 / 4)(random)));
      process.signal(SIGKILL);
      if (process.wait().status == 128 + SIGKILL) {
        ++killed;
        for (const auto& [name, content] : contents_of("out")) {
          const auto same = expected.find(name);
          EXPECT_TRUE(same == expected.end() || content == same->second) << name << " is there and not complete";
        }
      }
      const Finished done = flux2(words);
      ASSERT_EQ(done.status, 0) << done.err;
      EXPECT_TRUE(contents_of("out") == expected) << "kill " << i << ": other bytes, or more files than these";
    }
  }
  EXPECT_GE(killed, kKills / 2) << "most moments lie before the end";
  RecordProperty("killed", killed);
}

}  // namespace
}  // namespace flux2::test
