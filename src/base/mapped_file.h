#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>

namespace flux2 {

// A file mapped read-only. Everything that points into the file shares ownership of the mapping, so a tensor keeps its file
// alive. Only regular files can be opened: a folder, a device or a pipe is refused at once.
//
// Another process may truncate the file while it is mapped, and a disk may fail. The system answers a read of such bytes with the
// signal SIGBUS, on whichever thread reads. The first MappedFile installs a handler for it, which knows all mappings. The handler
// puts zeros in place of the bytes that are gone and marks the file as damaged, so that the reader goes on: with wrong values,
// but without a crash in the middle of a kernel or a library. check_mapped_files() then throws an Error that names the file. It
// is called after each step of a generation, before any file gets its final name, and before the program ends, so no result that
// was made from a damaged file looks like a success. A signal for any other address goes to the handler that was there before.
//
// Not detected: bytes that another process overwrites in place without shortening the file.
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
  struct Guard;
  static std::atomic<Guard*> guards_;  // a list; a signal handler reads it
  friend void check_mapped_files();

  MappedFile() = default;
  static void on_lost_page(int signal, void* info, void* context) noexcept;
  bool is_damaged() const;

  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
  int fd_ = -1;  // kept to see whether the file becomes shorter
  Guard* guard_ = nullptr;
};

// Throws BadFile if a file became shorter, or could not be read, while it was mapped. A file that is no longer mapped is reported
// once; a file that still is, by every call.
void check_mapped_files();

// Reads the bytes and throws BadFile if they belong to a damaged file. For those who gave them to the system, which answers
// EFAULT instead of a signal.
void check_mapped_bytes(std::span<const std::byte> bytes);

}  // namespace flux2
