#include "server/jobs/allowed_folders.h"

#include <algorithm>

#include "server/http/errors.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

// Empty if it cannot be found out.
fs::path canonical_path(const fs::path& path) {
  std::error_code failure;
  const fs::path absolute = fs::absolute(path, failure);
  if (failure) return {};
  fs::path found = fs::weakly_canonical(absolute, failure);
  return failure ? fs::path() : found;
}

}  // namespace

AllowedFolders::AllowedFolders(std::vector<fs::path> folders) {
  for (const fs::path& folder : folders)
    if (fs::path found = canonical_path(folder); !found.empty()) folders_.push_back(std::move(found));
}

bool AllowedFolders::contains(const fs::path& path) const {
  const fs::path found = canonical_path(path);
  if (found.empty()) return false;
  return std::any_of(folders_.begin(), folders_.end(), [&](const fs::path& folder) {
    return std::mismatch(folder.begin(), folder.end(), found.begin(), found.end()).first == folder.end();
  });
}

fs::path AllowedFolders::checked(const fs::path& path, const std::string& param) const {
  if (!path.empty() && path.native().find('\0') == std::string::npos && contains(path)) return canonical_path(path);
  HttpError error(400, "path_not_allowed", param + ": the path is not in a folder that this server may use", param);
  error.hint = "the setting serve.model_roots lists these folders";
  throw error;
}

}  // namespace flux2
