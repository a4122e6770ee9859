#pragma once

#include <cstddef>
#include <string>

#include "cli/command.h"

// What comes from the person at the terminal: signals, answers, standard input.
namespace flux2 {

// From here on, the first SIGINT or SIGTERM is only recorded; a second one ends the program immediately.
void watch_interrupts();

// The signal that came, or 0.
int interrupt_signal();

// Resets the state after an interruption was handled, as after watch_interrupts(). SIGTERM is not reset.
void forget_interrupt();

// All of standard input; InvalidArgument when it holds more than `limit` bytes. Throws Cancelled when a signal came while
// waiting.
std::string read_standard_input(size_t limit = size_t{16} << 20);

inline constexpr size_t kLargestInputImage = size_t{512} << 20;  // bytes of an image on standard input

// Asks on stderr and reads the answer from standard input. With --yes it does not ask. Anything but y or yes means no.
bool confirmed(Invocation& run, const std::string& question);

}  // namespace flux2
