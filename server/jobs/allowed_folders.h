#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace flux2 {

// The folders whose files a request may name. Everything else on this machine is refused in one way, whether it exists or not.
class AllowedFolders {
 public:
  AllowedFolders() = default;
  explicit AllowedFolders(std::vector<std::filesystem::path> folders);

  bool contains(const std::filesystem::path& path) const;  // symbolic links followed
  // The path without links and "..". Throws HttpError 400 `path_not_allowed`; `param` is the member that named it.
  std::filesystem::path checked(const std::filesystem::path& path, const std::string& param) const;
  const std::vector<std::filesystem::path>& folders() const { return folders_; }

 private:
  std::vector<std::filesystem::path> folders_;  // canonical
};

}  // namespace flux2
