#pragma once

#include <cstddef>
#include <string>

#include "cli/command.h"

// What comes from the person at the terminal: signals, answers, standard input.
namespace flux2 {

// From here on, the first SIGINT or SIGTERM is recorded, and commands end at the next opportunity. After SIGTERM the program ends
// within two seconds whatever it is doing. A second signal ends it immediately. Temporary files are deleted in all cases.
void watch_interrupts();

// Opens /dev/null for each standard stream that is closed. Otherwise the next file that is opened would get its number, and
// messages would be written into that file.
void open_standard_streams();

// From here on, the program may take this long to end after SIGTERM. For commands with much to put in order.
void allow_time_to_end(int seconds);

// The signal that came, or 0.
int interrupt_signal();

// Resets the state after an interruption was handled, as after watch_interrupts(). SIGTERM is not reset.
void forget_interrupt();

// All of standard input; InvalidArgument when it holds more than `limit` bytes. Throws Cancelled when a signal came while
// waiting.
std::string read_standard_input(size_t limit = size_t{16} << 20);

// Asks on stderr and reads the answer from standard input. With --yes it does not ask. Anything but y or yes means no.
bool confirmed(Invocation& run, const std::string& question);

}  // namespace flux2
