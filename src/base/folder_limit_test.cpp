#include "base/folder_limit.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <fstream>

namespace flux2 {
namespace {

namespace fs = std::filesystem;

TEST(FolderLimit, DeletesTheOldestFilesWithTheEnding) {
  const fs::path folder = fs::temp_directory_path() / ("flux2_folder_limit_" + std::to_string(::getpid()));
  fs::remove_all(folder);
  fs::create_directories(folder);
  const auto now = fs::file_time_type::clock::now();
  const auto add = [&](const char* name, int minutes_ago) {
    std::ofstream(folder / name) << std::string(100, 'x');
    fs::last_write_time(folder / name, now - std::chrono::minutes(minutes_ago));
  };
  add("new.cache", 1);
  add("old.cache", 3);
  add("middle.cache", 2);
  add("older.txt", 9);

  delete_oldest_files(folder, ".cache", 300);
  EXPECT_TRUE(fs::exists(folder / "old.cache")) << "300 bytes are allowed";
  delete_oldest_files(folder, ".cache", 299);
  EXPECT_FALSE(fs::exists(folder / "old.cache"));
  EXPECT_TRUE(fs::exists(folder / "middle.cache"));
  delete_oldest_files(folder, ".cache", 0);
  EXPECT_FALSE(fs::exists(folder / "new.cache"));
  EXPECT_TRUE(fs::exists(folder / "older.txt")) << "another ending";
  fs::remove_all(folder);
  EXPECT_NO_THROW(delete_oldest_files(folder, ".cache", 0)) << "no such folder";
}

}  // namespace
}  // namespace flux2
