#include "cli/user_input.h"

#include <fcntl.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iostream>

#include "base/error.h"
#include "base/temporary_files.h"
#include "base/text.h"
#include "cli/output.h"

namespace flux2 {

namespace {

// A signal handler can reach nothing but a global.
volatile std::sig_atomic_t g_signal = 0;

// How long the program may take to end by itself after SIGTERM.
volatile std::sig_atomic_t g_grace_ms = 1500;

// The commands look at g_signal between pieces of work, and then end with their files in order. Where that takes too long (a slow
// disk, a library that does not return), SIGALRM ends the program.
extern "C" void note_signal(int signal) {
  if (g_signal != 0) {  // the second one
    delete_noted_temporaries();
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // takes effect when this handler returns
    return;
  }
  g_signal = signal;
  if (signal != SIGTERM) return;
  itimerval grace{};
  grace.it_value.tv_sec = g_grace_ms / 1000;
  grace.it_value.tv_usec = g_grace_ms % 1000 * 1000;
  ::setitimer(ITIMER_REAL, &grace, nullptr);
}

extern "C" void end_now(int) {
  delete_noted_temporaries();
  write_last_words("\nflux2: stopped\n");
  ::_exit(128 + g_signal);
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;
  // All three block each other, so that one handler runs at a time on a thread. Without SA_RESTART a waiting read returns.
  sigemptyset(&action.sa_mask);
  for (const int other : {SIGINT, SIGTERM, SIGALRM}) sigaddset(&action.sa_mask, other);
  sigaction(signal, &action, nullptr);
}

}  // namespace

void watch_interrupts() {
  handle(SIGALRM, end_now);
  handle(SIGINT, note_signal);
  handle(SIGTERM, note_signal);
}

void open_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (::fcntl(fd, F_GETFD) != -1 || errno != EBADF) continue;
    // The lowest free descriptor, which is this one.
    if (::open("/dev/null", fd == STDIN_FILENO ? O_RDONLY : O_WRONLY) < 0) std::_Exit(1);
  }
}

int interrupt_signal() { return g_signal; }

void allow_time_to_end(int seconds) { g_grace_ms = seconds * 1000; }

void forget_interrupt() {
  if (g_signal != SIGINT) return;
  g_signal = 0;
  watch_interrupts();
}

std::string read_standard_input(size_t limit) {
  std::string text;
  char buffer[4096];
  while (std::cin.read(buffer, sizeof buffer) || std::cin.gcount() > 0) {
    text.append(buffer, static_cast<size_t>(std::cin.gcount()));
    check(text.size() <= limit, "standard input holds more than {} bytes", limit);
  }
  if (interrupt_signal() != 0) throw Error(ErrorCode::Cancelled, "stopped");
  return text;
}

bool confirmed(Invocation& run, const std::string& question) {
  if (run.settings.flag("yes")) return true;
  run.console.ask(question + " [y/N] ");
  std::string line;
  std::getline(std::cin, line);
  if (std::cin.eof()) run.console.ask("\n");
  const std::string_view answer = trimmed(line);
  return answer == "y" || answer == "Y" || answer == "yes" || answer == "Yes";
}

}  // namespace flux2
