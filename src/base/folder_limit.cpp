#include "base/folder_limit.h"

#include <algorithm>

namespace flux2 {

namespace fs = std::filesystem;

std::vector<FolderFile> files_with_ending(const fs::path& folder, std::string_view ending) {
  std::vector<FolderFile> files;
  std::error_code failed;
  for (fs::directory_iterator entry(folder, failed), end; !failed && entry != end; entry.increment(failed)) {
    if (!entry->path().filename().string().ends_with(ending)) continue;
    std::error_code gone;
    const auto bytes = entry->file_size(gone);
    const auto changed = entry->last_write_time(gone);
    if (!gone) files.push_back({entry->path(), changed, static_cast<int64_t>(bytes)});
  }
  std::sort(files.begin(), files.end(), [](const FolderFile& a, const FolderFile& b) { return a.changed < b.changed; });
  return files;
}

void delete_oldest_files(const fs::path& folder, std::string_view ending, int64_t limit) {
  const std::vector<FolderFile> files = files_with_ending(folder, ending);
  int64_t total = 0;
  for (const FolderFile& file : files) total += file.bytes;
  for (const FolderFile& file : files) {
    if (total <= limit) return;
    std::error_code gone;
    fs::remove(file.path, gone);
    total -= file.bytes;
  }
}

}  // namespace flux2
