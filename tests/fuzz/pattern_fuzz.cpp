#include <string>

#include "base/error.h"
#include "base/pattern.h"
#include "tests/fuzz/target.h"

// An expression and, after a zero byte, a name to match it with.
FUZZ_TARGET(pattern) {
  const std::string_view text = flux2_fuzz::text_of(data, size);
  const size_t zero = std::min(text.find('\0'), text.size());
  const flux2::Pattern pattern{std::string(text.substr(0, zero))};
  const std::string_view name = text.substr(std::min(zero + 1, text.size()));
  if (pattern.matches(name) && !pattern.found_in(name)) flux2_fuzz::broken();
}
