#include "hub/remote/byte_text.h"

#include <fmt/core.h>

namespace flux2 {

std::string byte_text(uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  double value = static_cast<double>(bytes);
  const char* unit = "";
  for (const char* next : {"KiB", "MiB", "GiB", "TiB"}) {
    if (value < 1024) break;
    value /= 1024;
    unit = next;
  }
  return value < 10    ? fmt::format("{:.2f} {}", value, unit)
         : value < 100 ? fmt::format("{:.1f} {}", value, unit)
                       : fmt::format("{:.0f} {}", value, unit);
}

}  // namespace flux2
