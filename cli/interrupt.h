#pragma once

namespace flux2 {

// From here on the first SIGINT or SIGTERM only leaves a note; a second one ends the program at once.
void watch_interrupts();

// The signal that came, or 0.
int interrupt_signal();

}  // namespace flux2
