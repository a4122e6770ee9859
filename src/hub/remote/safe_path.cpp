#include "hub/remote/safe_path.h"

#include <algorithm>
#include <string>

namespace flux2 {

namespace {

bool is_reserved(std::string_view name) {
  std::string stem(name.substr(0, name.find('.')));
  std::ranges::transform(stem, stem.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (stem == "CON" || stem == "PRN" || stem == "AUX" || stem == "NUL") return true;
  return stem.size() == 4 && (stem.starts_with("COM") || stem.starts_with("LPT")) && stem[3] >= '1' && stem[3] <= '9';
}

bool is_safe_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name == "." || name == ".." || is_reserved(name)) return false;
  return std::ranges::none_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '\\' || c == ':'; });
}

}  // namespace

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > 1024) return false;
  for (size_t at = 0; at <= path.size();) {
    const size_t slash = std::min(path.find('/', at), path.size());
    if (!is_safe_name(path.substr(at, slash - at))) return false;
    at = slash + 1;
  }
  return true;
}

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

}  // namespace flux2
