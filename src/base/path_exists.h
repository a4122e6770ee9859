#pragma once

#include <filesystem>

namespace flux2 {

// Whether the path exists. A path that cannot be examined counts as absent.
inline bool path_exists(const std::filesystem::path& path) {
  std::error_code unreadable;
  return std::filesystem::exists(path, unreadable);
}

}  // namespace flux2
