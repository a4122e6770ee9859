// A memory limit on the CPU is respected, or the request is refused before it starts.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>

#include "engine/forecast.h"
#include "tests/support/golden.h"

namespace flux2 {
namespace {

struct Outcome {
  bool refused = false;
  int64_t peak = 0;      // bytes that the process took at most
  int64_t smallest = 0;  // the limit that a refusal suggests
};

int64_t peak_of_process() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  return 0;
}

Outcome generate(const EngineOptions& options, const Request& request) {
  Outcome outcome;
  const Engine engine(options);
  try {
    const auto session = engine.open(tiny_model(), {}, {.working = working_bytes(engine, tiny_model(), request)});
    Request second = request;
    second.prompt = "another prompt";  // the encoder is loaded again while the transformer is in memory
    for (const Request* r : {&request, const_cast<const Request*>(&second)})
      text_to_image(*session, *r, {}, [](const Picture&) {});
  } catch (const Error& e) {
    if (e.code() != ErrorCode::OutOfMemory) throw;
    outcome.refused = true;
    for (const Suggestion& s : e.hint().suggestions)
      if (s.name == "max_ram") outcome.smallest = static_cast<int64_t>(std::stod(s.value) * (1 << 30));
  }
  outcome.peak = peak_of_process();
  return outcome;
}

// In a separate process, because the peak of a process never decreases.
Outcome in_child(const EngineOptions& options, const Request& request) {
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("no pipe");
  const pid_t child = fork();
  if (child == 0) {
    std::ofstream("/proc/self/clear_refs") << "5";
    Outcome outcome;
    try {
      outcome = generate(options, request);
    } catch (const std::exception& e) {
      fmt::print(stderr, "{}\n", e.what());
    }
    const bool sent = write(ends[1], &outcome, sizeof outcome) == sizeof outcome;
    _exit(sent ? 0 : 1);
  }
  close(ends[1]);
  Outcome outcome;
  const bool received = read(ends[0], &outcome, sizeof outcome) == sizeof outcome;
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!received || outcome.peak == 0) throw std::runtime_error("the child failed");
  return outcome;
}

TEST(MemoryLimit, IsKeptOrAnError) {
  Request request;
  request.prompt = "a red circle";
  request.steps = 1;
  for (const auto& [size, quant] : {std::pair{128, Quant::None}, {128, Quant::Int8}, {128, Quant::Q8_0}, {576, Quant::None}}) {
    request.width = request.height = size;
    EngineOptions options{.device = "cpu", .threads = 2, .quant = quant};
    options.memory_limit = int64_t{1} << 20;
    const Outcome least = in_child(options, request);
    ASSERT_TRUE(least.refused);
    ASSERT_GT(least.smallest, options.memory_limit);
    for (const double share : {0.9, 1.0}) {
      options.memory_limit = static_cast<int64_t>(share * static_cast<double>(least.smallest));
      const Outcome outcome = in_child(options, request);
      fmt::print("{0}x{0}, {1}: limit {2} MiB: {3} {4} MiB\n", size, name_of(quant), options.memory_limit >> 20,
                 outcome.refused ? "refused; the process took" : "kept with", outcome.peak >> 20);
      std::fflush(stdout);
      EXPECT_EQ(outcome.refused, share < 1);
      if (!outcome.refused) {
        EXPECT_LE(outcome.peak, options.memory_limit);
      }
    }
  }
}

}  // namespace
}  // namespace flux2
