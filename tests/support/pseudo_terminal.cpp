#include "tests/support/pseudo_terminal.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <vector>

namespace flux2::test {

PseudoTerminal::PseudoTerminal(const Start& start, unsigned short columns) {
  master_ = ::posix_openpt(O_RDWR | O_NOCTTY);
  if (master_ < 0 || ::grantpt(master_) != 0 || ::unlockpt(master_) != 0) throw std::runtime_error("no pseudo-terminal");
  const std::string name = ::ptsname(master_);
  winsize window{};
  window.ws_col = columns, window.ws_row = 30;
  ::ioctl(master_, TIOCSWINSZ, &window);

  std::vector<std::string> arguments = start.arguments, environment = {"TERM=xterm"};
  if (const char* path = ::getenv("PATH")) environment.push_back(std::string("PATH=") + path);
  for (const auto& [variable, value] : start.environment) environment.push_back(variable + "=" + value);
  std::vector<char*> argv, envp;
  for (std::string& text : arguments) argv.push_back(text.data());
  for (std::string& text : environment) envp.push_back(text.data());
  argv.push_back(nullptr), envp.push_back(nullptr);

  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ != 0) return;
  ::setsid();
  const int terminal = ::open(name.c_str(), O_RDWR);
  ::ioctl(terminal, TIOCSCTTY, 0);
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(terminal, fd);
  ::close(terminal), ::close(master_);
  if (!start.folder.empty() && ::chdir(start.folder.c_str()) != 0) ::_exit(126);
  ::execve(argv[0], argv.data(), envp.data());
  ::_exit(127);
}

PseudoTerminal::~PseudoTerminal() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    wait();
  }
  ::close(master_);
}

void PseudoTerminal::type(const std::string& keys) {
  if (::write(master_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) throw std::runtime_error("cannot type");
}

bool PseudoTerminal::read_some(int milliseconds) {
  pollfd input{master_, POLLIN, 0};
  if (::poll(&input, 1, milliseconds) <= 0) return false;
  char buffer[4096];
  const ssize_t n = ::read(master_, buffer, sizeof buffer);
  if (n > 0) output_.append(buffer, static_cast<size_t>(n));
  return n > 0;
}

bool PseudoTerminal::wait_for(const std::string& text, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (true) {
    if (const size_t at = output_.find(text, seen_); at != output_.npos) {
      passed_ = output_.substr(seen_, at - seen_);
      seen_ = at + text.size();
      return true;
    }
    if (std::chrono::steady_clock::now() > end) return false;
    pollfd input{master_, POLLIN, 0};
    if (::poll(&input, 1, 100) > 0 && !read_some(0)) return false;
  }
}

int PseudoTerminal::wait() {
  while (read_some(60'000)) {}
  int status = 0;
  ::waitpid(pid_, &status, 0);
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace flux2::test
