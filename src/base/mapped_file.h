#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace flux2 {

// A file mapped read-only. Everything that points into the file shares ownership of the mapping, so a tensor keeps its file
// alive.
class MappedFile {
 public:
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);

  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::filesystem::path& path() const { return path_; }

  // Hints to the operating system about a byte range. It is not an error if they have no effect.
  void will_need(size_t offset, size_t size) const;
  void drop(size_t offset, size_t size) const;  // the pages may be dropped; they are read again when accessed

 private:
  MappedFile() = default;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace flux2
