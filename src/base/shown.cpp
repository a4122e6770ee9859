#include "base/shown.h"

#include <algorithm>

namespace flux2 {

std::string shown(std::string_view name) {
  constexpr size_t kLongest = 120;
  size_t length = std::min(name.size(), kLongest);
  if (length < name.size())
    while (length > 0 && (static_cast<unsigned char>(name[length]) & 0xc0) == 0x80) --length;  // not inside a character
  std::string text(name.substr(0, length));
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
  if (length < name.size()) text += "…";
  return text;
}

}  // namespace flux2
