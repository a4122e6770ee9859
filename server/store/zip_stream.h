#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/mapped_file.h"

namespace flux2 {

// Writes a zip archive piece by piece, without a temporary file: libraries for zip archives go back to write sizes and checksums,
// which is not possible in an answer that is being sent. Entries are stored as they are, because images are compressed already.
// Sizes are known before, so the size of the whole archive is too. Archives over 4 GiB or 65,535 entries are in the form zip64.
class ZipStream {
 public:
  struct Entry {
    std::string name;     // UTF-8, with "/" between folders
    std::string content;  // used if `file` is absent
    std::function<std::filesystem::path()> file = {};
    uint64_t size = 0;  // of the file
  };
  explicit ZipStream(std::vector<Entry> entries);

  uint64_t size() const { return size_; }
  // The next bytes; empty at the end. Throws if a file is missing or has another size.
  std::string next();

 private:
  std::string begin_entry(uint64_t offset);  // its header
  std::string directory(uint64_t offset) const;

  struct Written {
    uint64_t offset = 0, size = 0;
    uint32_t crc = 0;
  };
  std::vector<Entry> entries_;
  std::vector<Written> written_;
  uint64_t size_ = 0, sent_ = 0;
  std::shared_ptr<const MappedFile> mapped_;  // of the current entry
  std::span<const std::byte> rest_;           // of the current entry, not yet sent
  bool is_open_ = false, is_done_ = false;
};

}  // namespace flux2
