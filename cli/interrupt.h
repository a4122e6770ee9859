#pragma once

namespace flux2 {

// From here on, the first SIGINT or SIGTERM is only recorded; a second one ends the program immediately.
void watch_interrupts();

// The signal that came, or 0.
int interrupt_signal();

// Resets the state after an interruption was handled, as after watch_interrupts(). SIGTERM is not reset.
void forget_interrupt();

}  // namespace flux2
