#include "tests/support/subprocess.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <utility>

namespace flux2::test {

namespace {

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  return list;
}

// Input small enough for the pipe's buffer, so that nobody has to write while the other side does.
constexpr size_t kPipeBuffer = 60'000;

}  // namespace

Subprocess::Subprocess(const Start& start) {
  int in[2], out[2], err[2];
  if (start.input.size() > kPipeBuffer) throw std::runtime_error("input too long for a test");
  if (::pipe(in) != 0 || ::pipe(out) != 0 || ::pipe(err) != 0) throw std::runtime_error("pipe failed");
  std::vector<std::string> arguments = start.arguments, environment;
  const char* path = std::getenv("PATH");
  environment.push_back(std::string("PATH=") + (path ? path : "/usr/bin:/bin"));
  for (const char* name :
       {"ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"})  // a sanitized program obeys them too
    if (const char* value = std::getenv(name)) environment.push_back(std::string(name) + "=" + value);
  for (const auto& [name, value] : start.environment) environment.push_back(name + "=" + value);
  const auto argv = pointers(arguments), envp = pointers(environment);

  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    ::dup2(in[0], STDIN_FILENO);
    ::dup2(out[1], STDOUT_FILENO);
    ::dup2(err[1], STDERR_FILENO);
    for (const int fd : {in[0], in[1], out[0], out[1], err[0], err[1]}) ::close(fd);
    if (!start.folder.empty() && ::chdir(start.folder.c_str()) != 0) ::_exit(126);
    ::execve(argv[0], argv.data(), envp.data());
    ::_exit(127);
  }
  for (const int fd : {in[0], out[1], err[1]}) ::close(fd);
  out_ = out[0], err_ = err[0];
  if (::write(in[1], start.input.data(), start.input.size()) < 0) { /* it may have ended already */
  }
  if (start.input_ends) ::close(in[1]);
  else in_ = in[1];
}

Subprocess::~Subprocess() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    wait();
  }
  if (in_ >= 0) ::close(in_);
}

bool Subprocess::read_some(int milliseconds) {
  pollfd ends[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
  if (out_ < 0 && err_ < 0) return false;
  ::poll(ends, 2, milliseconds);
  const auto take = [](pollfd& end, int& fd, std::string& text) {
    if (fd < 0 || !(end.revents & (POLLIN | POLLHUP | POLLERR))) return;
    char buffer[4096];
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
    else ::close(std::exchange(fd, -1));
  };
  take(ends[0], out_, result_.out);
  take(ends[1], err_, result_.err);
  return out_ >= 0 || err_ >= 0;
}

bool Subprocess::wait_for_error_text(const std::string& text) {
  while (result_.err.find(text) == std::string::npos)
    if (!read_some()) return false;
  return true;
}

void Subprocess::signal(int number) { ::kill(pid_, number); }

Finished Subprocess::wait(double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (read_some(100)) {
    if (result_.timed_out || std::chrono::steady_clock::now() < end) continue;
    result_.timed_out = true;
    ::kill(pid_, SIGKILL);
  }
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  result_.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result_;
}

}  // namespace flux2::test
