#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace flux2 {

struct FolderFile {
  std::filesystem::path path;
  std::filesystem::file_time_type changed;
  int64_t bytes = 0;
};

// The files of a folder whose names have that ending, those changed longest ago first. Empty if there is no such folder.
std::vector<FolderFile> files_with_ending(const std::filesystem::path& folder, std::string_view ending);

// Deletes files of a folder whose names have that ending until the others take at most `limit` bytes. The files that were changed
// longest ago are deleted first. Other processes may add and delete files meanwhile.
void delete_oldest_files(const std::filesystem::path& folder, std::string_view ending, int64_t limit);

}  // namespace flux2
