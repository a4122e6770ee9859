#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace flux2 {

// Where a file lies in a cache shared with Python's hub library:
//   CACHE/models--OWNER--NAME/snapshots/COMMIT/path → ../../blobs/HASH
struct HubPlace {
  std::filesystem::path repository_folder;  // CACHE/models--OWNER--NAME
  std::string repository;                   // "OWNER/NAME"
  std::string commit;

  std::filesystem::path snapshot() const { return repository_folder / "snapshots" / commit; }
};

// Nothing for paths outside such a cache.
std::optional<HubPlace> hub_place_of(const std::filesystem::path& path);

// The hash a cache keeps a file under, when that is a SHA-256; empty for other files.
std::string hub_hash_of(const std::filesystem::path& file);

// "OWNER/NAME" of a folder called models--OWNER--NAME; empty for other names.
std::string hub_repository_named(const std::string& folder_name);

}  // namespace flux2
