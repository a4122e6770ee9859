#include "cli/standard_input.h"

#include <iostream>

#include "base/error.h"
#include "cli/interrupt.h"

namespace flux2 {

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

}  // namespace flux2
