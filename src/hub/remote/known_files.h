#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// A published file, used to recognise files and to give hints without network access. Downloads always use the hub's own listing.
struct KnownFile {
  const char* repository;
  const char* path;
  uint64_t bytes;      // 0: not known
  bool exact;          // whether bytes is more than an estimate
  const char* sha256;  // empty: not known
  bool gated;
};

std::span<const KnownFile> known_files();
const KnownFile* find_known_file(std::string_view sha256);           // null: none of them
std::vector<KnownFile> known_files_of(std::string_view repository);  // whatever the case of its letters

}  // namespace flux2
