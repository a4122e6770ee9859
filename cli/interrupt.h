#pragma once

namespace flux2 {

// From here on the first SIGINT or SIGTERM only leaves a note; a second one ends the program at once.
void watch_interrupts();

// The signal that came, or 0.
int interrupt_signal();

// An interruption that was dealt with: from here on as after watch_interrupts(). SIGTERM is not forgotten.
void forget_interrupt();

}  // namespace flux2
