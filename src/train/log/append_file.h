#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>

namespace flux2 {

// A log that grows while others read it. Each append() is one write, so that a reader sees at most one torn record, at the end.
// An append that fails leaves the file as it was before.
class AppendFile {
 public:
  enum class Start { Empty, Continue };

  AppendFile(std::filesystem::path path, Start start);  // creates missing folders; throws CannotWrite
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  const std::filesystem::path& path() const { return path_; }
  void append(std::string_view bytes);  // throws CannotWrite

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  int64_t size_ = 0;
};

}  // namespace flux2
