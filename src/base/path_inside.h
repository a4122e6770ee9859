#pragma once

#include <filesystem>

namespace flux2 {

// Whether the path is the folder or lies below it, as both are written: links are not resolved.
inline bool is_inside(const std::filesystem::path& path, const std::filesystem::path& folder) {
  const std::filesystem::path relative = path.lexically_relative(folder);
  return relative == "." || (!relative.empty() && *relative.begin() != "..");
}

}  // namespace flux2
