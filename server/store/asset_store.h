#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "hub/registry/database.h"

namespace flux2 {

// A stored image, mask or upload.
struct Asset {
  std::string id;             // 26 characters
  std::string project, kind;  // image, temporary, mask, upload, reference, sheet
  std::string path;           // relative to the data folder
  std::string mime, sha256, job, parent;
  uint64_t bytes = 0;
  int width = 0, height = 0;
  int64_t created = 0;
  bool missing = false;  // the file is gone
};

// Images below the data folder and their rows in flux2.db. A file is written completely, then renamed, then its row is inserted,
// so a kill leaves at most a file without a row, which sweep() removes. Thread-safe.
class AssetStore {
 public:
  AssetStore(const std::filesystem::path& data_folder);

  // Stores encoded image bytes. The type comes from the bytes: PNG, JPEG, WebP, BMP or PNM; anything else is InvalidArgument.
  // Identical bytes of one project and kind are stored once. `fields` gives project, kind, job and parent.
  Asset put(std::span<const std::byte> bytes, Asset fields);
  Asset put_file(const std::filesystem::path& file, Asset fields);  // moves it

  std::optional<Asset> get(const std::string& id) const;
  std::filesystem::path path_of(const Asset& asset) const;  // throws NotFound if the file is gone
  bool remove(const std::string& id);                       // row first, then file

  // Removes the assets of a kind that were created before that time (ms since 1970). Returns how many.
  int remove_older(const std::string& kind, int64_t before);

  // Called at start: removes files without a row that are older than `age_seconds`, marks rows without a file.
  struct Swept {
    int files_removed = 0, rows_missing = 0;
  };
  Swept sweep(int64_t age_seconds = 3600);

  const std::filesystem::path& folder() const { return folder_; }

 private:
  std::filesystem::path folder_;
  mutable std::mutex mutex_;
  Database database_;
};

}  // namespace flux2
