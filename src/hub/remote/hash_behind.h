#pragma once

#include <cstddef>
#include <exception>
#include <filesystem>
#include <stop_token>
#include <string>
#include <thread>

#include "base/sha256.h"
#include "hub/remote/partial_file.h"

namespace flux2 {

// Computes the SHA-256 of a file while it is downloaded: a thread follows the contiguous part and reads it while it is still in
// memory, so the hash is known shortly after the last byte. Bytes of an earlier attempt are included.
class HashBehind {
 public:
  explicit HashBehind(const PartialFile& file);

  // Once no more bytes come: the hash of `size` bytes, 64 digits. Throws BadFile when they cannot be read.
  std::string finish(uint64_t size);

 private:
  void follow(const std::stop_token& stop);
  void advance(PartialFile::Front front, const std::stop_token& stop);

  const PartialFile& file_;
  Sha256 hash_;
  uint64_t done_ = 0;
  int attempt_ = 0;
  std::exception_ptr thrown_;
  std::jthread thread_;  // last: it uses the others
};

// SHA-1 of "blob <size>\0" and the content: what git, and the hub for small files, names a file by.
std::string git_blob_id(const std::filesystem::path& path);

}  // namespace flux2
