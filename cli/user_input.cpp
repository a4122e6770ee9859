#include "cli/user_input.h"

#include <csignal>
#include <cstdio>
#include <iostream>

#include "base/error.h"
#include "base/text.h"

namespace flux2 {

namespace {

// A signal handler can reach nothing but a global.
volatile std::sig_atomic_t g_signal = 0;

extern "C" void note_signal(int signal) { g_signal = signal; }

}  // namespace

void watch_interrupts() {
  struct sigaction action = {};
  action.sa_handler = note_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

int interrupt_signal() { return g_signal; }

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
  run.console.clear_status();
  std::fputs((question + " [y/N] ").c_str(), stderr);
  std::fflush(stderr);
  std::string line;
  std::getline(std::cin, line);
  if (std::cin.eof()) std::fputs("\n", stderr);
  const std::string_view answer = trimmed(line);
  return answer == "y" || answer == "Y" || answer == "yes" || answer == "Yes";
}

}  // namespace flux2
