#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hub/remote/hub_client.h"

namespace flux2 {

// Whether a path sent by a server is safe to use below a folder of ours: relative, made of ordinary names, without "..",
// back-slashes, control characters or names that some systems reserve.
bool is_safe_path(std::string_view path);

bool is_hex(std::string_view text, size_t digits);  // lower-case
inline bool is_commit(std::string_view text) { return is_hex(text, 40); }

// A SHA-256 or a git blob id: what the cache names its blobs by.
inline bool is_blob_id(std::string_view text) { return is_hex(text, 64) || is_hex(text, 40); }

bool is_file_of_size(const std::filesystem::path& path, uint64_t size);  // through a link, too

// One repository in the cache shared with Python's huggingface_hub:
//   models--owner--name/blobs/<etag>, snapshots/<commit>/<path> → ../../blobs/<etag>, refs/<revision>, .no_exist/<commit>/<path>
class HubCache {
 public:
  HubCache(const std::filesystem::path& cache, const std::string& repository);

  std::filesystem::path folder() const { return folder_; }
  std::filesystem::path blob(const std::string& etag) const { return folder_ / "blobs" / etag; }
  std::filesystem::path partial(const std::string& etag) const { return folder_ / "blobs" / (etag + ".flux2.incomplete"); }
  std::filesystem::path lock(const std::string& etag) const { return locks_ / (etag + ".lock"); }
  std::filesystem::path snapshot(const std::string& commit) const { return folder_ / "snapshots" / commit; }

  // The commit of a revision when it was last requested; a commit maps to itself.
  std::optional<std::string> commit_of(const std::string& revision) const;
  std::vector<RemoteFile> files(const std::string& commit) const;  // that lie in a snapshot; etag: when it is a link to a blob
  bool is_known_absent(const std::string& commit, const std::string& path) const;

  void prepare() const;  // the folders, and the tag that keeps back-ups out
  void link(const std::string& commit, const std::string& path, const std::string& etag) const;  // a blob that is there
  void move_in(const std::string& commit, const std::string& path, const std::filesystem::path& file) const;  // no symlinks here
  void write_ref(const std::string& revision, const std::string& commit) const;
  void note_absent(const std::string& commit, const std::string& path) const;

 private:
  std::filesystem::path cache_, folder_, locks_;
};

// The location of a file in the cache shared with Python's huggingface_hub:
//   CACHE/models--OWNER--NAME/snapshots/COMMIT/path → ../../blobs/HASH
struct HubSnapshot {
  std::filesystem::path repository_folder;  // CACHE/models--OWNER--NAME
  std::string repository;                   // "OWNER/NAME"
  std::string commit;

  std::filesystem::path snapshot() const { return repository_folder / "snapshots" / commit; }
};

// Nothing for paths outside such a cache.
std::optional<HubSnapshot> hub_snapshot_of(const std::filesystem::path& path);

// The hash a cache keeps a file under, when that is a SHA-256; empty for other files.
std::string hub_hash_of(const std::filesystem::path& file);

// "OWNER/NAME" of a folder called models--OWNER--NAME; empty for other names.
std::string hub_repository_named(const std::string& folder_name);

}  // namespace flux2
