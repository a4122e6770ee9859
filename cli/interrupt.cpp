#include "cli/interrupt.h"

#include <csignal>

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

}  // namespace flux2
