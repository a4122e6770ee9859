#include "train/ranks/local_ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "base/error.h"
#include "train/ranks/tcp_socket.h"

extern char** environ;

namespace flux2 {

namespace {

std::string ending_text(int status) {
  if (WIFSIGNALED(status)) return fmt::format("was killed by signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
  return fmt::format("ended with status {}", WEXITSTATUS(status));
}

std::string random_token() {
  std::random_device source;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", source(), source(), source(), source());
}

std::vector<std::string> environment_of(const RankPlace& place) {
  std::vector<std::string> lines = {fmt::format("RANK={}", place.rank),
                                    fmt::format("WORLD_SIZE={}", place.size),
                                    fmt::format("LOCAL_RANK={}", place.local_rank),
                                    "MASTER_ADDR=" + place.address,
                                    fmt::format("MASTER_PORT={}", place.port),
                                    "FLUX2_RANK_TOKEN=" + place.token};
  const size_t own = lines.size();
  for (char** line = environ; *line != nullptr; ++line) {
    const std::string_view text = *line;
    bool replaced = false;
    for (size_t i = 0; i < own; ++i) replaced = replaced || text.starts_with(lines[i].substr(0, lines[i].find('=') + 1));
    if (!replaced) lines.emplace_back(text);
  }
  return lines;
}

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Everything is prepared before fork(): the child of a program with threads may call little.
pid_t start_rank(const std::vector<std::string>& argv, const RankPlace& place) {
  std::vector<std::string> arguments = argv, environment = environment_of(place);
  const auto argument_pointers = pointers_to(arguments), environment_pointers = pointers_to(environment);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing >= 0) ::dup2(nothing, STDIN_FILENO);
  ::execvpe(argument_pointers[0], argument_pointers.data(), environment_pointers.data());
  ::_exit(127);
}

class ForkedRanks final : public LocalRanks {
 public:
  ForkedRanks(const std::vector<std::string>& argv, int count) {
    place_.size = count;
    place_.port = listen_at(place_.address, 0).local_port();
    place_.token = random_token();
    children_.reserve(static_cast<size_t>(count));
    for (int r = 1; r < count; ++r) {
      RankPlace place = place_;
      place.rank = place.local_rank = r;
      const pid_t child = start_rank(argv, place);
      if (child < 0) {
        const int reason = errno;
        end_all();
        fail(ErrorCode::OutOfMemory, "cannot start rank {}: {}", r, std::strerror(reason));
      }
      children_.push_back(child);
    }
  }
  ~ForkedRanks() override { end_all(); }

  const RankPlace& place() const override { return place_; }

  void forward(int signal) noexcept override {
    for (const pid_t child : children_)
      if (child > 0) ::kill(child, signal);
  }

  void wait() override {
    std::string failure;
    for (size_t i = 0; i < children_.size(); ++i) {
      const int status = reap(children_[i], 0).value_or(0);
      if (status != 0 && failure.empty()) failure = fmt::format("rank {} {}", i + 1, ending_text(status));
    }
    if (!failure.empty()) fail(ErrorCode::Device, "{}", failure);
  }

 private:
  // The status of a child that has ended; empty if it runs, or was reaped before.
  static std::optional<int> reap(pid_t& child, int flags) {
    if (child <= 0) return std::nullopt;
    int status = 0;
    pid_t ended = 0;
    do ended = ::waitpid(child, &status, flags);
    while (ended < 0 && errno == EINTR);
    if (ended == 0) return std::nullopt;
    child = 0;
    return ended < 0 ? std::nullopt : std::optional(status);
  }

  bool any_runs() {
    bool any = false;
    for (pid_t& child : children_) {
      reap(child, WNOHANG);
      any = any || child > 0;
    }
    return any;
  }

  void end_all() {
    constexpr auto kPatience = std::chrono::seconds(5);
    if (!any_runs()) return;
    forward(SIGTERM);
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (any_runs() && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    forward(SIGKILL);
    for (pid_t& child : children_) reap(child, 0);
  }

  RankPlace place_;
  std::vector<pid_t> children_;  // 0: reaped
};

}  // namespace

std::unique_ptr<LocalRanks> start_local_ranks(const std::vector<std::string>& argv, int count) {
  check(count >= 1 && count <= 1024, "{} ranks cannot be started", count);
  check(!argv.empty(), "the command line of the ranks is empty");
  return std::make_unique<ForkedRanks>(argv, count);
}

}  // namespace flux2
