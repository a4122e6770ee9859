#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/blobs/draft_file.h"

namespace flux2 {

// Local copies of blobs, bounded by bytes: those that were used longest ago are removed first. Files used within the last minute
// stay, because somebody may be about to open them. The state is the folder alone, so several processes may share it.
class BlobCache {
 public:
  BlobCache(std::filesystem::path folder, uint64_t limit_bytes);

  std::optional<std::filesystem::path> find(const std::string& name) const;  // and marks it as used
  std::unique_ptr<DraftFile> draft(const std::string& name) const;           // to be written, committed, then added()
  void added(uint64_t bytes);
  void remove(const std::string& name) const;
  void trim();

 private:
  std::filesystem::path path_of(const std::string& name) const;

  std::filesystem::path folder_;
  uint64_t limit_;
  std::mutex trimming_;
  std::atomic<uint64_t> since_trim_ = 0;
};

}  // namespace flux2
