#include "train/ranks/process_group.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "base/error.h"
#include "tensor/tensor.h"
#include "train/ranks/tcp_socket.h"

namespace flux2 {
namespace {

using ::testing::HasSubstr;

// A port that nobody listens at. The system gives ports of this range to nobody who does not name them, so that no connection of
// another test can take it before the rank that is to listen there.
int free_port() {
  std::mt19937 random(std::random_device{}());
  for (int i = 0; i < 100; ++i) {
    const int port = std::uniform_int_distribution<int>(12'000, 32'000)(random);
    try {
      return listen_at("127.0.0.1", port).local_port();
    } catch (const Error&) {}
  }
  return listen_at("127.0.0.1", 0).local_port();
}

RankPlace place_of(int rank, int size, int port) {
  RankPlace place;
  place.rank = place.local_rank = rank;
  place.size = size;
  place.port = port;
  return place;
}

// Short times, so that tests end soon.
ProcessGroupOptions quick() {
  ProcessGroupOptions options;
  options.join_timeout_s = 20;
  options.heartbeat_s = 0.1;
  options.silence_s = 60;  // only the test about silence waits for it
  return options;
}

TEST(ProcessGroup, PatienceIsAlsoForOperations) {
  EXPECT_EQ(ProcessGroupOptions::patient(600).join_timeout_s, 600);
  EXPECT_EQ(ProcessGroupOptions::patient(600).collective_timeout_s, ProcessGroupOptions().collective_timeout_s);
  EXPECT_EQ(ProcessGroupOptions::patient(20000).collective_timeout_s, 20000);
}

struct RankEnd {
  std::string text;  // what the rank returned, or its error
  bool killed = false;
  double seconds = 0;
};

// Runs `body` as every rank of `ranks`, each in a process of its own.
std::vector<RankEnd> run_ranks(const std::vector<int>& ranks, const std::function<std::string(int rank)>& body) {
  struct Child {
    pid_t pid = 0;
    int output = -1;
  };
  const auto begun = std::chrono::steady_clock::now();
  std::vector<Child> children;
  for (const int rank : ranks) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    const pid_t pid = ::fork();
    if (pid == 0) {
      std::string text;
      try {
        text = body(rank);
      } catch (const std::exception& e) {
        text = std::string("error: ") + e.what();
      }
      const ssize_t n = ::write(ends[1], text.data(), text.size());
      ::_exit(n == static_cast<ssize_t>(text.size()) ? 0 : 1);
    }
    ::close(ends[1]);
    children.push_back({pid, ends[0]});
  }
  std::vector<RankEnd> results;
  for (const Child& child : children) {
    RankEnd result;
    char buffer[4096];
    for (ssize_t n = 0; (n = ::read(child.output, buffer, sizeof buffer)) > 0;)
      result.text.append(buffer, static_cast<size_t>(n));
    ::close(child.output);
    int status = 0;
    ::waitpid(child.pid, &status, 0);
    result.killed = WIFSIGNALED(status);
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    results.push_back(result);
  }
  return results;
}

std::vector<RankEnd> run_group(int size, const std::function<std::string(ProcessGroup&)>& body) {
  const int port = free_port();
  std::vector<int> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(r);
  return run_ranks(ranks, [&](int rank) {
    const auto group = ProcessGroup::join(place_of(rank, size, port), quick());
    return body(*group);
  });
}

// Values whose sum depends on the order in which they are added.
float value_of(int rank, size_t i) {
  const auto x = static_cast<uint32_t>(i) * 2654435761u + static_cast<uint32_t>(rank) * 40503u;
  return static_cast<float>(x % 10007) * (rank % 2 == 0 ? 1e-3f : 1e4f) - 5.0f;
}

class Sums : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Sums, ::testing::Values(1, 2, 3, 5));

TEST_P(Sums, AreAddedInRankOrderAndTheSameEverywhere) {
  const int size = GetParam();
  const auto ends = run_group(size, [&](ProcessGroup& group) -> std::string {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{3}, size_t{32768}, size_t{32769}, size_t{1'000'003}}) {
      std::vector<float> values(count);
      std::vector<double> doubles(count / 7);
      for (size_t i = 0; i < count; ++i) values[i] = value_of(group.rank(), i);
      for (size_t i = 0; i < doubles.size(); ++i) doubles[i] = static_cast<double>(value_of(group.rank(), i));
      group.all_reduce(std::span(values));
      group.all_reduce(std::span(doubles));
      for (size_t i = 0; i < count; ++i) {
        float expected = value_of(0, i);
        for (int r = 1; r < group.size(); ++r) expected = expected + value_of(r, i);
        if (values[i] != expected) return fmt::format("value {} of {} is {}, not {}", i, count, values[i], expected);
      }
      for (size_t i = 0; i < doubles.size(); ++i) {
        double expected = 0;
        for (int r = 0; r < group.size(); ++r) expected += static_cast<double>(value_of(r, i));
        if (doubles[i] != expected) return fmt::format("double {} of {} is {}, not {}", i, count, doubles[i], expected);
      }
    }
    return "equal";
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.text, "equal");
}

TEST(ProcessGroup, BroadcastsFromAnyRankAndAddsTensors) {
  const auto ends = run_group(4, [](ProcessGroup& group) -> std::string {
    for (int from = 0; from < group.size(); ++from)
      for (const size_t count : {size_t{0}, size_t{5}, size_t{700'001}}) {
        std::vector<std::byte> bytes(count, static_cast<std::byte>(group.rank()));
        group.broadcast(bytes, from);
        for (const std::byte b : bytes)
          if (b != static_cast<std::byte>(from)) return "wrong byte";
        group.barrier();
      }
    Tensor x = Tensor::host_empty(DType::F32, {2, 3});
    for (int i = 0; i < 6; ++i) x.data<float>()[i] = static_cast<float>(i + group.rank());
    Communicator& plain = group;
    plain.all_reduce(x);
    for (int i = 0; i < 6; ++i)
      if (x.data<float>()[i] != static_cast<float>(4 * i + 6)) return "wrong sum";
    return "right";
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.text, "right");
}

class KilledRank : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, KilledRank, ::testing::Values(0, 1, 3));

TEST_P(KilledRank, IsNamedByAllOthersWithinSeconds) {
  const int killed = GetParam();
  const auto ends = run_group(4, [&](ProcessGroup& group) -> std::string {
    std::vector<float> values(200'000, 1.0f);
    for (int step = 0;; ++step) {
      if (step == 5 && group.rank() == killed) ::raise(SIGKILL);
      group.all_reduce(std::span(values));
    }
  });
  for (int r = 0; r < 4; ++r) {
    const RankEnd& end = ends[static_cast<size_t>(r)];
    EXPECT_EQ(end.killed, r == killed);
    if (r == killed) continue;
    EXPECT_EQ(end.text, fmt::format("error: rank {} has ended unexpectedly", killed));
    EXPECT_LT(end.seconds, 30) << "by its connections, not by its silence";
  }
}

TEST(ProcessGroup, ARankThatIsStoppedCountsAsDead) {
  int ends_of_pipe[2];
  ASSERT_EQ(::pipe(ends_of_pipe), 0);
  const int port = free_port();
  const auto ends = run_ranks({0, 1, 2}, [&](int rank) -> std::string {
    ProcessGroupOptions options = quick();
    options.silence_s = 2;
    const auto group = ProcessGroup::join(place_of(rank, 3, port), options);
    if (rank == 2) {
      const pid_t self = ::getpid();
      if (::write(ends_of_pipe[1], &self, sizeof self) != sizeof self) return "no pipe";
      ::raise(SIGSTOP);
      return "went on";
    }
    std::vector<float> values(10);
    try {
      group->all_reduce(std::span(values));
    } catch (const Error& e) {
      pid_t other = 0;
      if (rank == 0 && ::read(ends_of_pipe[0], &other, sizeof other) == sizeof other) ::kill(other, SIGKILL);
      return e.what();
    }
    return "no error";
  });
  EXPECT_THAT(ends[0].text, HasSubstr("rank 2 has not answered for"));
  EXPECT_THAT(ends[1].text, HasSubstr("rank 2 has not answered for"));
  EXPECT_TRUE(ends[2].killed);
  ::close(ends_of_pipe[0]);
  ::close(ends_of_pipe[1]);
}

TEST(ProcessGroup, ARankThatIsAliveButDoesNotGoOnIsNamed) {
  const int port = free_port();
  const auto ends = run_ranks({0, 1, 2}, [&](int rank) -> std::string {
    ProcessGroupOptions options = quick();
    options.collective_timeout_s = 1;
    const auto group = ProcessGroup::join(place_of(rank, 3, port), options);
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
    std::vector<float> values(10);
    group->all_reduce(std::span(values));
    return "no error";
  });
  for (const RankEnd& end : ends)
    EXPECT_THAT(end.text, HasSubstr("have waited 1 s for rank 1, which is alive but does not go on"));
}

TEST(ProcessGroup, AnErrorOfOneRankReachesAll) {
  const auto thrown = run_group(3, [](ProcessGroup& group) -> std::string {
    if (group.rank() == 1) group.abort("the loss is not a number");
    std::vector<float> values(10);
    group.all_reduce(std::span(values));
    return "no error";
  });
  for (const RankEnd& end : thrown) EXPECT_EQ(end.text, "error: rank 1: the loss is not a number");

  const auto unwound = run_group(3, [](ProcessGroup& group) -> std::string {
    if (group.rank() == 2) throw std::runtime_error("out of memory");
    std::vector<float> values(10);
    group.all_reduce(std::span(values));
    return "no error";
  });
  EXPECT_EQ(unwound[0].text, "error: rank 2 stopped with an error");
  EXPECT_EQ(unwound[1].text, "error: rank 2 stopped with an error");
  EXPECT_EQ(unwound[2].text, "error: out of memory");
}

TEST(ProcessGroup, RanksMayEndOneAfterTheOther) {
  const auto ends = run_group(3, [](ProcessGroup& group) -> std::string {
    std::vector<float> values(1000, 1.0f);
    group.all_reduce(std::span(values));
    std::this_thread::sleep_for(std::chrono::milliseconds(400 * group.rank()));
    return values[999] == 3.0f ? "fine" : "wrong";
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.text, "fine");
  EXPECT_LT(ends[0].seconds, 30) << "it does not wait for a sign of the others";

  const auto left = run_group(3, [](ProcessGroup& group) -> std::string {
    std::vector<float> values(1000, 1.0f);
    group.all_reduce(std::span(values));
    if (group.rank() == 2) return "left";
    group.all_reduce(std::span(values));
    return "no error";
  });
  EXPECT_EQ(left[2].text, "left");
  for (int r = 0; r < 2; ++r) EXPECT_EQ(left[static_cast<size_t>(r)].text, "error: rank 2 has ended, but the other ranks go on");
}

TEST(ProcessGroup, RanksThatDoDifferentThingsSaySo) {
  const auto ends = run_group(2, [](ProcessGroup& group) -> std::string {
    std::vector<float> values(group.rank() == 0 ? 10 : 12);
    group.all_reduce(std::span(values));
    return "no error";
  });
  for (const RankEnd& end : ends)
    EXPECT_EQ(end.text, "error: ranks 0 and 1 do different things: a sum of floats of 40 bytes and a sum of floats of 48 bytes");
}

TEST(ProcessGroup, WaitsForALateRankInAnyOrder) {
  const int port = free_port();
  const auto ends = run_ranks({0, 1, 2}, [&](int rank) -> std::string {
    std::this_thread::sleep_for(std::chrono::milliseconds(rank == 0 ? 700 : 350 * (rank - 1)));
    const auto group = ProcessGroup::join(place_of(rank, 3, port), quick());
    group->barrier();
    return "met";
  });
  for (const RankEnd& end : ends) EXPECT_EQ(end.text, "met");
}

TEST(ProcessGroup, NamesTheRanksThatAreMissing) {
  const int port = free_port();
  const auto join = [&](int rank, int size, double seconds) -> std::string {
    ProcessGroupOptions options = quick();
    options.join_timeout_s = seconds;
    ProcessGroup::join(place_of(rank, size, port), options);
    return "met";
  };
  const auto ends = run_ranks({0, 2}, [&](int rank) { return join(rank, 5, 1); });
  for (const RankEnd& end : ends) EXPECT_EQ(end.text, "error: ranks 1, 3 and 4 did not arrive within 1 s");

  const auto alone = run_ranks({1}, [&](int rank) { return join(rank, 2, 0.5); });
  EXPECT_THAT(alone[0].text, HasSubstr(fmt::format("rank 0 cannot be reached at port {} of 127.0.0.1 after", port)));
}

TEST(ProcessGroup, RefusesStrangersAndAPortInUse) {
  const int port = free_port();
  // Two processes with rank 1, one of a larger group, one of another run; then the right rank 2.
  const auto ends = run_ranks({0, 1, 11, 12, 13, 2}, [&](int process) -> std::string {
    RankPlace place = place_of(process == 0 ? 0 : process == 2 ? 2 : 1, process == 12 ? 4 : 3, port);
    if (process == 13) place.token = "another";
    if (process > 10) std::this_thread::sleep_for(std::chrono::milliseconds(800));
    if (process == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2400));
    const auto group = ProcessGroup::join(place, quick());
    group->barrier();
    return "met";
  });
  EXPECT_EQ(ends[0].text, "met");
  EXPECT_EQ(ends[1].text, "met");
  EXPECT_EQ(ends[5].text, "met");
  EXPECT_EQ(ends[2].text, "error: rank 1 is there already; two processes have the same RANK");
  EXPECT_EQ(ends[3].text, "error: this process has WORLD_SIZE 4, but rank 0 has 3");
  EXPECT_EQ(ends[4].text, "error: this process belongs to another run that uses the same port");

  const TcpSocket taken = listen_at("127.0.0.1", 0);
  try {
    ProcessGroup::join(place_of(0, 2, taken.local_port()), quick());
    FAIL() << "the port was free";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Network);
    EXPECT_EQ(std::string(e.what()), fmt::format("port {} of 127.0.0.1 is in use", taken.local_port()));
  }
}

}  // namespace
}  // namespace flux2
