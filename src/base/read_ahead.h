#pragma once

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

namespace flux2 {

// Reads files into the page cache in the background, one after the other, while other threads compute. A mapping alone reads only
// on access, so the disk would be idle in the meantime. The destructor stops it early.
class ReadAhead {
 public:
  explicit ReadAhead(std::vector<std::filesystem::path> files);
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead();

  int64_t finish();  // waits for the end; returns the bytes that were not in the cache

 private:
  std::vector<std::filesystem::path> files_;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> read_ = 0;
  std::jthread thread_;
};

}  // namespace flux2
