#include "hub/registry/hub_place.h"

#include <algorithm>
#include <vector>

namespace flux2 {

namespace fs = std::filesystem;

namespace {

bool is_hex(const std::string& text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

}  // namespace

std::string hub_repository_named(const std::string& folder_name) {
  constexpr std::string_view kStart = "models--";
  if (!folder_name.starts_with(kStart)) return {};
  std::string id = folder_name.substr(kStart.size());
  if (const size_t dashes = id.find("--"); dashes != std::string::npos) id.replace(dashes, 2, "/");
  return id;
}

std::optional<HubPlace> hub_place_of(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  fs::path folder;
  std::vector<fs::path> parts(whole.begin(), whole.end());
  for (size_t i = 0; i + 2 < parts.size(); ++i) {
    folder /= parts[i];
    const std::string repository = hub_repository_named(parts[i].string());
    if (!repository.empty() && parts[i + 1] == "snapshots") return HubPlace{folder, repository, parts[i + 2].string()};
  }
  return std::nullopt;
}

std::string hub_hash_of(const fs::path& file) {
  std::error_code failure;
  const fs::path target = fs::read_symlink(file, failure);
  if (failure || target.parent_path().filename() != "blobs" || !hub_place_of(file)) return {};
  const std::string name = target.filename().string();
  return is_hex(name, 64) ? name : std::string();
}

}  // namespace flux2
