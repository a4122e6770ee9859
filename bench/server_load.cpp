// Load on a server: idle event streams, and clients that submit jobs and wait for each.
//   server_load PORT [streams 2000] [clients 40] [requests 25] [size 64] [steps 2] [server's pid]
// Each client submits a job, follows its events until it ends, and then submits the next one. Every job must end once, with one
// image. One thread and epoll, so that it takes little from the server on the same cores; it says how much. With one client it
// also says how much longer a job takes than the engine works for it.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void stop(const std::string& why) {
  fmt::print(stderr, "server_load: {}\n", why);
  std::exit(1);
}

double seconds_between(Clock::time_point a, Clock::time_point b) { return std::chrono::duration<double>(b - a).count(); }

int connected(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (fd < 0 || ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    stop(fmt::format("cannot connect: {}", std::strerror(errno)));
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

void send_all(int fd, const std::string& text) {
  if (::send(fd, text.data(), text.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(text.size())) stop("cannot send");
}

std::string get(const std::string& path) {
  return fmt::format("GET {} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", path);
}

std::string text_after(const std::string& text, const std::string& before, char end) {
  const size_t at = text.find(before);
  if (at == text.npos) return {};
  return text.substr(at + before.size(), text.find(end, at + before.size()) - at - before.size());
}

// From a job's timings, which are rounded to milliseconds.
double engine_seconds(const std::string& job) {
  const std::string timings = text_after(job, "\"timings_ms\":{", '}') + ",";
  double ms = 0;
  for (const char* phase : {"load", "text", "encode", "denoise", "decode"})
    ms += std::atof(text_after(timings, fmt::format("\"{}\":", phase), ',').c_str());
  return ms / 1000;
}

struct Process {  // of the server, from /proc
  double seconds = 0, mebibytes = 0;
};

Process look_at(int pid) {
  Process process;
  if (pid == 0) return process;
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::stringstream all;
  all << stat.rdbuf();
  std::stringstream fields(all.str().substr(std::min(all.str().size(), all.str().rfind(')') + 2)));
  std::string field;
  for (int i = 0; i < 22 && fields >> field; ++i) {
    if (i == 11 || i == 12) process.seconds += std::atof(field.c_str()) / static_cast<double>(::sysconf(_SC_CLK_TCK));
    if (i == 21) process.mebibytes = std::atof(field.c_str()) * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
  }
  return process;
}

double own_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) { return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec); };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

class Load {
 public:
  Load(int port, int streams, int clients, int requests, int size, int steps, int pid)
      : port_(port), streams_(streams), clients_(clients), requests_(requests), size_(size), steps_(steps), pid_(pid) {}

  void run();

 private:
  enum class Kind { Stream, Submit, Follow, Check, Probe };
  struct Talk {
    Kind kind;
    int client = 0, request = 0;
    std::string job, answer;
    Clock::time_point began = Clock::now(), submitted = began;
  };

  void begin(Kind kind, int client, int request, const std::string& job, const std::string& text,
             Clock::time_point submitted = Clock::now());
  void submit(int client, int request);
  void wait_for_events(int milliseconds);
  void read_from(int fd);
  void ended(const Talk& talk);
  void report(double seconds, double server_seconds, double own);

  int port_, streams_, clients_, requests_, size_, steps_, pid_;
  int epoll_ = ::epoll_create1(0);
  std::map<int, Talk> talks_;
  std::set<std::string> jobs_, completed_;
  std::vector<std::pair<Clock::time_point, std::pair<int, int>>> again_;  // requests that found the queue full
  int64_t stream_bytes_ = 0, closed_streams_ = 0, refused_ = 0, twice_ = 0, checked_ = 0;
  bool probing_ = false;
  std::vector<double> latencies_, memory_, overheads_;
  std::map<std::string, double> waited_;  // by job: from its submission to its end
};

void Load::begin(Kind kind, int client, int request, const std::string& job, const std::string& text,
                 Clock::time_point submitted) {
  const int fd = connected(port_);
  send_all(fd, text);
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
  talks_[fd] = {.kind = kind, .client = client, .request = request, .job = job, .answer = {}, .submitted = submitted};
}

void Load::submit(int client, int request) {
  const std::string body = fmt::format(R"({{"prompt":"a red circle","width":{},"height":{},"steps":{},"seed":{}}})", size_, size_,
                                       steps_, client * 1000 + request);
  begin(Kind::Submit, client, request, "",
        fmt::format("POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n"
                    "content-length: {}\r\n\r\n{}",
                    body.size(), body));
}

void Load::read_from(int fd) {
  static char buffer[1 << 16];
  Talk& talk = talks_.at(fd);
  while (true) {
    // What an idle stream gets is counted and thrown away; TCP need not copy it for that.
    const bool discards = talk.kind == Kind::Stream;
    const ssize_t n = ::recv(fd, discards ? nullptr : buffer, sizeof buffer, discards ? MSG_TRUNC : 0);
    if (n > 0) {
      if (discards) stream_bytes_ += n;
      else talk.answer.append(buffer, static_cast<size_t>(n));
      if (static_cast<size_t>(n) < sizeof buffer) return;
      continue;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    ::close(fd);
    const Talk done = std::move(talk);
    talks_.erase(fd);
    return ended(done);
  }
}

void Load::ended(const Talk& talk) {
  const std::string status = talk.answer.substr(0, std::min<size_t>(talk.answer.size(), 12));
  switch (talk.kind) {
    case Kind::Stream: ++closed_streams_; return;
    case Kind::Probe:
      if (status != "HTTP/1.1 200") stop("/healthz answers " + talk.answer);
      latencies_.push_back(seconds_between(talk.began, Clock::now()));
      probing_ = false;
      return;
    case Kind::Submit: {
      if (status == "HTTP/1.1 429") {
        ++refused_;
        again_.push_back({Clock::now() + std::chrono::milliseconds(200), {talk.client, talk.request}});
        return;
      }
      if (status != "HTTP/1.1 202") stop("a job was refused: " + talk.answer);
      const std::string job = text_after(talk.answer, "\"id\":\"", '"');
      if (!jobs_.insert(job).second) ++twice_;
      begin(Kind::Follow, talk.client, talk.request, job, get("/api/v1/jobs/" + job + "/events"), talk.began);
      return;
    }
    case Kind::Follow: {
      const bool completed = talk.answer.find("event: job.completed") != talk.answer.npos ||
                             talk.answer.find("\"state\":\"completed\"") != talk.answer.npos;
      if (!completed) stop("a job did not complete: " + talk.answer);
      completed_.insert(talk.job);
      waited_[talk.job] = seconds_between(talk.submitted, Clock::now());
      if (talk.request + 1 < requests_) submit(talk.client, talk.request + 1);
      return;
    }
    case Kind::Check:
      if (talk.answer.find("\"index\":0") == talk.answer.npos || talk.answer.find("\"index\":1") != talk.answer.npos)
        stop("a job has not exactly one image: " + talk.answer);
      ++checked_;
      overheads_.push_back(waited_[talk.job] - engine_seconds(talk.answer));
      return;
  }
}

void Load::wait_for_events(int milliseconds) {
  epoll_event events[512];
  const int n = ::epoll_wait(epoll_, events, 512, milliseconds);
  for (int i = 0; i < n; ++i) read_from(events[i].data.fd);
}

void Load::run() {
  rlimit files{.rlim_cur = 65536, .rlim_max = 65536};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  for (int i = 0; i < streams_; ++i) {
    begin(Kind::Stream, 0, 0, "", "GET /api/v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n");
    if (i % 100 == 99) wait_for_events(1);
  }
  for (int i = 0; streams_ > 0 && i < 20; ++i) wait_for_events(100);
  fmt::print("{} streams open; the server has {:.1f} MiB\n", streams_, look_at(pid_).mebibytes);
  const auto began = Clock::now();
  const double own_before = own_seconds(), server_before = look_at(pid_).seconds;
  for (int i = 0; i < clients_; ++i) submit(i, 0);
  auto next_probe = Clock::now();
  while (completed_.size() < static_cast<size_t>(clients_ * requests_)) {
    if (!probing_ && Clock::now() >= next_probe) {
      probing_ = true;
      next_probe = Clock::now() + std::chrono::milliseconds(100);
      memory_.push_back(look_at(pid_).mebibytes);
      begin(Kind::Probe, 0, 0, "", get("/healthz"));
    }
    const auto now = Clock::now();
    std::vector<std::pair<int, int>> due;
    std::erase_if(again_, [&](const auto& one) {
      if (one.first <= now) due.push_back(one.second);
      return one.first <= now;
    });
    for (const auto& [client, request] : due) submit(client, request);
    wait_for_events(20);
  }
  report(seconds_between(began, Clock::now()), look_at(pid_).seconds - server_before, own_seconds() - own_before);
}

void Load::report(double seconds, double server_seconds, double own) {
  for (const std::string& job : completed_) {
    begin(Kind::Check, 0, 0, job, get("/api/v1/jobs/" + job));
    while (talks_.size() > static_cast<size_t>(streams_) - static_cast<size_t>(closed_streams_) + 20) wait_for_events(1000);
  }
  for (int i = 0; i < 50 && checked_ < static_cast<int64_t>(completed_.size()); ++i) wait_for_events(100);
  const auto images = static_cast<double>(completed_.size());
  const double lost = static_cast<double>(clients_ * requests_) - static_cast<double>(checked_);
  std::sort(latencies_.begin(), latencies_.end());
  const auto latency = [&](double share) {
    return 1000 * latencies_[static_cast<size_t>(share * static_cast<double>(latencies_.size() - 1))];
  };
  fmt::print("{} jobs in {:.1f} s: {:.2f} images/s; lost {}, twice {}, refused and sent again {}\n", images, seconds,
             images / seconds, lost, twice_, refused_);
  fmt::print("/healthz: {} probes, median {:.1f} ms, p99 {:.1f} ms, longest {:.1f} ms\n", latencies_.size(), latency(0.5),
             latency(0.99), latency(1));
  fmt::print("streams: {} closed by the server, {:.1f} MB received\n", closed_streams_,
             1e-6 * static_cast<double>(stream_bytes_));
  fmt::print("processor: server {:.1f} s ({:.2f} images per second of processor), this program {:.1f} s\n", server_seconds,
             server_seconds > 0 ? images / server_seconds : 0, own);
  if (clients_ == 1 && !overheads_.empty()) {
    std::sort(overheads_.begin(), overheads_.end());
    fmt::print("overhead of a job beside the engine's own time: median {:.1f} ms, longest {:.1f} ms\n",
               1000 * overheads_[overheads_.size() / 2], 1000 * overheads_.back());
  }
  if (pid_ == 0 || memory_.size() < 4) return;
  const auto [low, high] = std::minmax_element(memory_.begin() + static_cast<std::ptrdiff_t>(memory_.size() / 2), memory_.end());
  fmt::print("memory: second half {:.1f} to {:.1f} MiB ({:.1f} %)\n", *low, *high, 100 * (*high - *low) / *low);
}

}  // namespace

int main(int count, char** values) {
  const auto value = [&](int i, int otherwise) { return count > i ? std::atoi(values[i]) : otherwise; };
  if (value(1, 0) == 0) stop("usage: server_load PORT [streams] [clients] [requests] [size] [steps] [pid of the server]");
  Load(value(1, 0), value(2, 2000), value(3, 40), value(4, 25), value(5, 64), value(6, 2), value(7, 0)).run();
}
