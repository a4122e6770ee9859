#pragma once

#include <atomic>
#include <filesystem>
#include <thread>
#include <vector>

namespace flux2 {

// Brings files into the system's cache in the background, one after the other, while others compute with what is there:
// a mapping alone reads only when it is touched, and the disk would rest meanwhile. Ends early when it is destroyed.
class ReadAhead {
 public:
  explicit ReadAhead(std::vector<std::filesystem::path> files);
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;
  ~ReadAhead();

  int64_t finish();  // waits for the end; bytes that were not in the cache

 private:
  std::vector<std::filesystem::path> files_;
  std::atomic<bool> stop_ = false;
  std::atomic<int64_t> read_ = 0;
  std::thread thread_;
};

}  // namespace flux2
