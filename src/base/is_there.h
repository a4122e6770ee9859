#pragma once

#include <filesystem>

namespace flux2 {

// Whether something lies at the path. What cannot be looked at counts as absent.
inline bool is_there(const std::filesystem::path& path) {
  std::error_code unreadable;
  return std::filesystem::exists(path, unreadable);
}

}  // namespace flux2
