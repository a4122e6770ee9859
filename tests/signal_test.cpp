// How the program ends after signals, and when streams or files change while it runs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/support/jobs.h"

namespace flux2::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

constexpr double kMostSeconds = 2;

class Signals : public JobTest {
 protected:
  void SetUp() override {
    JobTest::SetUp();
    begin_anew();
  }

  // Sends the signals and returns how long the program takes to end.
  static double seconds_to_end(Subprocess& process, std::initializer_list<int> signals, Finished& done) {
    const auto sent = Clock::now();
    for (const int signal : signals) {
      process.signal(signal);
      if (signals.size() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    done = process.wait(20);
    return std::chrono::duration<double>(Clock::now() - sent).count();
  }

  std::vector<std::string> temporaries() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(folder_))
      if (entry.path().filename().string().ends_with("flux2-tmp")) found.push_back(entry.path().string());
    return found;
  }

  // Starts the program, waits, and sends it the signals; it must end within `most` seconds. A machine that is busy with other
  // tests may be slow to run it, so it has three attempts. Unless `wait` says otherwise, it may end before the signal arrives.
  template <class Wait>
  void expect_ends_in_time(const Start& start, const Wait& wait, std::initializer_list<int> signals, double most,
                           const std::string& what) {
    double least = 1000;
    for (int attempt = 0; attempt < 3 && least >= most; ++attempt) {
      Subprocess process(start);
      const bool must_run = wait(process);
      Finished done;
      least = std::min(least, seconds_to_end(process, signals, done));
      EXPECT_TRUE(done.status == 128 + *signals.begin() || (!must_run && done.status == 0)) << what << ": " << done.status << "\n"
                                                                                            << done.err;
      EXPECT_THAT(temporaries(), testing::IsEmpty()) << what;
    }
    EXPECT_LT(least, most) << what;
  }
  // SIGTERM after that time.
  void expect_ends_in_time(const Start& start, int after_ms, const std::string& what) {
    const auto sleep = [&](Subprocess&) {
      std::this_thread::sleep_for(std::chrono::milliseconds(after_ms));
      return false;
    };
    expect_ends_in_time(start, sleep, {SIGTERM}, kMostSeconds, fmt::format("{} after {} ms", what, after_ms));
  }

  Start words(std::vector<std::string> list) const { return start(std::move(list)); }
};

TEST_F(Signals, SigtermEndsEveryPhaseInTime) {
  write("many.txt", "{a|b|c|d|e|f|g|h} {a|b|c|d|e|f|g|h} {a|b|c|d|e|f|g|h} {a|b|c|d|e|f|g|h} {a|b|c|d|e|f|g|h}\n");
  const std::string klein = golden_folder() / "tiny/flux-2-klein-tiny.safetensors";
  Start waiting = words({"generate", "--prompt-file", "-", "-o", "out/x.png"});
  waiting.input_ends = false;
  const std::vector<std::pair<std::string, Start>> phases = {
      {"generate", words({"generate", "a red circle", "-s", "100", "--size", "1024x1024", "-o", "out/{seq}.png"})},
      {"quantise", words({"generate", "a red circle", "-s", "100", "--size", "512x512", "--quant", "q4_0", "-o", "out/q.png"})},
      {"convert", words({"convert", klein, "--quant", "q2_k", "--threads", "1", "-o", "out/x.gguf"})},
      {"plan", words({"plan", "a red circle", "--size", "1024x1024", "-b", "1000"})},
      {"prompts", words({"generate", "--prompt-file", "many.txt", "-s", "50", "-o", "out/{seq}.png"})},
      {"standard input", waiting},
      {"merge",
       words({"lora", "merge", "ink.safetensors", "--into", pico("flux-2-pico.safetensors"), "-o", "out/m.safetensors"})},
  };
  for (const auto& [what, start] : phases)
    for (const int after : {1, 30, 100, 300, 1000}) expect_ends_in_time(start, after, what);
}

TEST_F(Signals, SigtermEndsAnInstallationFromAStalledServer) {
  const HttpServer stalled([](const ServedRequest&) { return Reply{.body = "late", .wait_s = 60}; });
  for (const int after : {50, 500}) {
    Start s = words({"models", "install", "owner/model"});
    s.environment["HF_ENDPOINT"] = stalled.url();
    s.environment["HF_HOME"] = (folder_ / "hf").string();
    expect_ends_in_time(s, after, "install");
  }
}

// A system call that never returns.
TEST_F(Signals, SigtermEndsAProgramThatHangs) {
  for (const char* name : {"convert", "generate", "merge"}) {
    begin_anew();
    Start s = start_of(job(name));
    s.environment["LD_PRELOAD"] = fault_library();
    s.environment["FLUX2_FAULT"] = "hang:2";
    s.environment["FLUX2_FAULT_TRACE"] = "1";  // says when it hangs
    const auto hangs = [](Subprocess& process) {
      EXPECT_TRUE(process.wait_for_error_text("faults.so"));
      return true;
    };
    expect_ends_in_time(s, hangs, {SIGTERM}, kMostSeconds, name);
    expect_ends_in_time(s, hangs, {SIGINT, SIGINT}, 1, name);
  }
}

TEST_F(Signals, ClosedStandardStreamsDoNotGetIntoFiles) {
  const Job convert = job("convert");
  learn(convert);
  for (const char* closed : {"2>&-", ">&- 2>&-", "<&- >&- 2>&-"}) {
    begin_anew();
    Start s = start_of(convert);
    std::vector<std::string> shell = {"/bin/sh", "-c", std::string("exec \"$0\" \"$@\" ") + closed};
    shell.insert(shell.end(), s.arguments.begin(), s.arguments.end());
    shell.insert(shell.end(), {"--progress", "json"});
    s.arguments = shell;
    EXPECT_EQ(problem_after_success(convert, run(s)), "") << closed;
  }
}

TEST_F(Signals, AModelThatIsTruncatedWhileItIsUsedIsNamed) {
  fs::create_directories(folder_ / "model");
  for (const auto& entry : fs::directory_iterator(pico_folder()))
    fs::copy(entry.path(), folder_ / "model" / entry.path().filename(), fs::copy_options::recursive);
  Subprocess process(words({"generate", "a red circle", "-s", "200", "--size", "512x512", "--progress", "json", "-m",
                            (folder_ / "model/flux-2-pico.safetensors").string(), "-o", "out/x.png"}));
  ASSERT_TRUE(process.wait_for_error_text("denoise"));
  fs::resize_file(folder_ / "model/flux-2-pico.safetensors", 5000);
  const Finished done = process.wait(60);
  EXPECT_EQ(done.status, 4) << done.err;
  EXPECT_THAT(done.err, AllOf(HasSubstr("flux-2-pico.safetensors"), HasSubstr("changed while it was in use")));
  EXPECT_FALSE(exists("out/x.png"));
}

TEST_F(Signals, PipesDevicesAndFoldersAreRefusedAtOnce) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((folder_ / "pipe.safetensors").c_str(), 0600), 0);
  ASSERT_EQ(::mkfifo((folder_ / "pipe.png").c_str(), 0600), 0);
  const std::string pipe = (folder_ / "pipe").string(), weights = pipe + ".safetensors", picture = pipe + ".png";
  const std::vector<std::vector<std::string>> commands = {
      {"inspect", pipe},
      {"inspect", "/dev/zero"},
      {"inspect", weights},
      {"convert", weights, "--quant", "q4_k", "-o", "out/x.gguf"},
      {"generate", "a fox", "-m", weights},
      {"generate", "a fox", "-i", picture},
      {"generate", "a fox", "-i", "/dev/zero"},
      {"generate", "a fox", "--lora", weights},
      {"verify", picture},
      {"lora", "info", weights},
      {"models", "install", weights},
      {"generate", "--from", picture},
  };
  for (const auto& command : commands) {
    const Finished done = run(words(command), 10);
    EXPECT_FALSE(done.timed_out) << testing::PrintToString(command);
    EXPECT_NE(done.status, 0) << testing::PrintToString(command);
    EXPECT_THAT(done.err, HasSubstr("not a regular file")) << testing::PrintToString(command);
  }
}

}  // namespace
}  // namespace flux2::test
