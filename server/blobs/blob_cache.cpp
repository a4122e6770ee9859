#include "server/blobs/blob_cache.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/error.h"
#include "base/path_exists.h"
#include "server/blobs/blob_store.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr auto kInUse = std::chrono::seconds(60);
constexpr auto kDraftAge = std::chrono::hours(1);
constexpr uint64_t kTrimParts = 16;  // the folder is looked through after so large a part of the limit was added

fs::path drafts_of(const fs::path& folder) { return folder / "drafts"; }

}  // namespace

BlobCache::BlobCache(fs::path folder, uint64_t limit_bytes) : folder_(std::move(folder)), limit_(limit_bytes) {
  for (const fs::path& path : {folder_ / "files", drafts_of(folder_)}) {
    std::error_code failure;
    fs::create_directories(path, failure);
    if (failure) fail(ErrorCode::CannotWrite, "cannot create folder {}: {}", path.string(), failure.message());
  }
  trim();
}

// One flat folder: "generated/ID.png" → "generated_ID.png". Names have no underscore before the slash, so this is unambiguous.
fs::path BlobCache::path_of(const std::string& name) const {
  check_blob_name(name);
  std::string flat = name;
  std::replace(flat.begin(), flat.end(), '/', '_');
  return folder_ / "files" / flat;
}

std::optional<fs::path> BlobCache::find(const std::string& name) const {
  fs::path path = path_of(name);
  std::error_code gone;
  fs::last_write_time(path, fs::file_time_type::clock::now(), gone);
  return gone || !is_file(path) ? std::nullopt : std::optional(std::move(path));
}

std::unique_ptr<DraftFile> BlobCache::draft(const std::string& name) const {
  return std::make_unique<DraftFile>(drafts_of(folder_), path_of(name));
}

void BlobCache::remove(const std::string& name) const {
  std::error_code ignored;
  fs::remove(path_of(name), ignored);
}

void BlobCache::added(uint64_t bytes) {
  if (since_trim_.fetch_add(bytes) + bytes >= std::max<uint64_t>(limit_ / kTrimParts, 1)) trim();
}

void BlobCache::trim() {
  const std::unique_lock lock(trimming_, std::try_to_lock);
  if (!lock) return;  // another thread does it
  since_trim_ = 0;
  struct File {
    fs::path path;
    fs::file_time_type used;
    uint64_t bytes = 0;
  };
  std::vector<File> files;
  uint64_t total = 0;
  const auto now = fs::file_time_type::clock::now();
  std::error_code failure;
  for (fs::directory_iterator entry(folder_ / "files", failure), end; !failure && entry != end; entry.increment(failure)) {
    std::error_code gone;
    File file{.path = entry->path(), .used = entry->last_write_time(gone), .bytes = 0};
    if (!gone) file.bytes = entry->file_size(gone);
    if (gone) continue;
    total += file.bytes;
    files.push_back(std::move(file));
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) { return a.used < b.used; });
  for (const File& file : files) {
    if (total <= limit_ || file.used > now - kInUse) break;
    std::error_code ignored;
    fs::remove(file.path, ignored);
    total -= file.bytes;
  }
  remove_stale_temporaries(drafts_of(folder_));
  std::vector<fs::path> old;
  for (fs::directory_iterator entry(drafts_of(folder_), failure), end; !failure && entry != end; entry.increment(failure)) {
    std::error_code gone;
    if (entry->last_write_time(gone) < now - kDraftAge && !gone) old.push_back(entry->path());
  }
  for (const fs::path& path : old) fs::remove(path, failure);
}

}  // namespace flux2
