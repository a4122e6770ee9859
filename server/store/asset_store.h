#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/limits.h"
#include "server/blobs/blob_store.h"
#include "server/store/sql.h"

namespace flux2 {

// A stored image, mask or upload.
struct Asset {
  std::string id;             // 26 characters
  std::string project, kind;  // image, mask, upload, reference, sheet, temporary
  std::string path;           // its name in the blob store
  std::string mime, sha256, job, parent;
  uint64_t bytes = 0;
  int width = 0, height = 0;  // as shown
  int64_t created = 0;
  bool missing = false;  // the file is gone
};

struct AssetFilter {
  std::string project, kind, job;
  std::string before;  // assets older than this id
  int limit = 50;
};

// Images in a folder or an S3-compatible store, and their rows in the database. A file is stored completely, then its row is
// inserted, so a kill leaves at most a file without a row, which sweep() removes. Thread-safe.
class AssetStore {
 public:
  // Images over the limits are refused before they are decoded.
  AssetStore(const std::filesystem::path& data_folder, std::unique_ptr<BlobStore> blobs, std::shared_ptr<SqlDatabase> database,
             ImageLimits limits = Limits::for_server().image);
  // With the images in the data folder, and the rows in its flux2.db.
  explicit AssetStore(const std::filesystem::path& data_folder, ImageLimits limits = Limits::for_server().image);

  // Stores encoded image bytes. The type comes from the bytes: PNG, JPEG, WebP, BMP or PNM; anything else is InvalidArgument.
  // Identical bytes of one project and kind are stored once, and leave the trash if they are there. `fields` gives project, kind,
  // job and parent. Without a project, the asset belongs to that of its job.
  Asset put(std::span<const std::byte> bytes, Asset fields);
  Asset put_file(const std::filesystem::path& file, Asset fields);  // moves it

  // Stores the file of an asset with a new id and no row, which the caller inserts. remove_blob() takes it back.
  Asset write_blob(std::span<const std::byte> bytes, Asset fields);
  void remove_blob(const Asset& asset) const { remove_files(asset); }

  std::optional<Asset> get(const std::string& id) const;
  std::vector<Asset> list(const AssetFilter& filter) const;  // newest first
  int64_t count(const AssetFilter& filter) const;            // all pages together
  // A local file, which stays for at least a minute. Throws NotFound if the file is gone.
  std::filesystem::path path_of(const Asset& asset) const;
  // A small copy, at most 384 pixels per side, as WebP or, without it, JPEG. Made at the first call.
  std::filesystem::path thumbnail(const Asset& asset) const;
  bool remove(const std::string& id);                            // row first, then files
  int remove_older(const std::string& kind, int64_t before_ms);  // those of one kind that were stored before; their number

  // Called at start: removes files without a row that are older than `age_seconds`, marks rows without a file.
  struct Swept {
    int files_removed = 0, rows_missing = 0;
  };
  Swept sweep(int64_t age_seconds = 3600);

  // How images that requests name by their address are brought here. Before requests come. Without it, or if it is empty at the
  // moment, such requests are refused.
  using Fetch = std::function<std::vector<std::byte>(const std::string& url)>;
  void set_fetch(std::function<Fetch()> fetch) { fetch_ = std::move(fetch); }
  Fetch fetch() const { return fetch_ ? fetch_() : Fetch(); }

  const std::filesystem::path& folder() const { return folder_; }  // the data folder; images may be elsewhere
  BlobStore& blobs() { return *blobs_; }
  SqlDatabase& database() const { return *database_; }  // of the other tables of the studio

 private:
  std::string project_of(const Asset& asset) const;
  Asset described(std::span<const std::byte> bytes, Asset fields) const;
  void write_file(std::span<const std::byte> bytes, Asset& asset);
  std::optional<Asset> find_equal(const Asset& asset) const;
  std::set<std::string> known(const std::vector<std::string>& ids) const;  // those that have a row
  void remove_files(const Asset& asset) const;

  std::filesystem::path folder_;
  std::unique_ptr<BlobStore> blobs_;
  ImageLimits limits_;
  std::shared_ptr<SqlDatabase> database_;
  std::function<Fetch()> fetch_;
};

}  // namespace flux2
