#pragma once

#include <filesystem>

namespace flux2 {

// A path that cannot be examined counts as absent. Links are followed.
inline bool path_exists(const std::filesystem::path& path) {
  std::error_code unreadable;
  return std::filesystem::exists(path, unreadable);
}

inline bool is_file(const std::filesystem::path& path) {
  std::error_code unreadable;
  return std::filesystem::is_regular_file(path, unreadable);
}

inline bool is_folder(const std::filesystem::path& path) {
  std::error_code unreadable;
  return std::filesystem::is_directory(path, unreadable);
}

// The same for every spelling of a place: links to folders are resolved. A file that is a link keeps its name and folder.
inline std::filesystem::path real_place(const std::filesystem::path& path) {
  std::error_code unreadable;
  if (is_folder(path)) return std::filesystem::weakly_canonical(path, unreadable);
  const std::filesystem::path full = std::filesystem::absolute(path).lexically_normal();
  return std::filesystem::weakly_canonical(full.parent_path(), unreadable) / full.filename();
}

}  // namespace flux2
