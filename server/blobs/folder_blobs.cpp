#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/path_exists.h"
#include "server/blobs/blob_store.h"
#include "server/blobs/draft_file.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

constexpr const char* kDrafts = "workspace";
constexpr size_t kFilesOfPage = 1000;

int64_t unix_ms(fs::file_time_type time) {
  const auto age = fs::file_time_type::clock::now() - time;
  const auto then = std::chrono::system_clock::now() - std::chrono::duration_cast<std::chrono::system_clock::duration>(age);
  return std::chrono::duration_cast<std::chrono::milliseconds>(then.time_since_epoch()).count();
}

class FolderBlobs : public BlobStore {
 public:
  explicit FolderBlobs(fs::path folder) : folder_(std::move(folder)) {
    for (const char* name : {"generated", "uploads", "thumbs", kDrafts}) make(name);
  }

  void put(const std::string& name, std::span<const std::byte> bytes, const std::string&) override {
    DraftFile file(folder_ / kDrafts, path_of(name));
    file.write(bytes);
    make(fs::path(name).parent_path());
    file.commit();
  }

  std::optional<fs::path> fetch(const std::string& name) override {
    fs::path path = path_of(name);
    return is_file(path) ? std::optional(std::move(path)) : std::nullopt;
  }

  bool exists(const std::string& name) override { return is_file(path_of(name)); }

  void remove(const std::string& name) override {
    std::error_code failure;
    fs::remove(path_of(name), failure);
    if (failure) fail(ErrorCode::CannotWrite, "cannot remove {}: {}", path_of(name).string(), failure.message());
  }

  void list(const std::string& folder, const Page& page) override {
    std::vector<Blob> blobs;
    const auto give = [&] {
      if (!blobs.empty()) page(blobs);
      blobs.clear();
    };
    std::error_code failure;
    // The names are read before any file is removed: an iterator may or may not see changes.
    std::vector<fs::path> files;
    for (fs::directory_iterator file(folder_ / folder, failure), end; !failure && file != end; file.increment(failure))
      files.push_back(file->path());
    for (const fs::path& file : files) {
      if (!is_file(file)) continue;
      std::error_code gone;
      const auto time = fs::last_write_time(file, gone);
      const auto bytes = gone ? 0 : fs::file_size(file, gone);
      if (gone) continue;
      blobs.push_back({.name = folder + "/" + file.filename().string(), .bytes = bytes, .modified = unix_ms(time)});
      if (blobs.size() == kFilesOfPage) give();
    }
    give();
  }

  int tidy(std::chrono::seconds age) override {
    remove_stale_temporaries(folder_ / kDrafts);
    const auto newest = fs::file_time_type::clock::now() - age;
    std::vector<fs::path> old;
    std::error_code failure;
    for (fs::directory_iterator file(folder_ / kDrafts, failure), end; !failure && file != end; file.increment(failure)) {
      std::error_code gone;
      if (is_file(file->path()) && fs::last_write_time(file->path(), gone) <= newest && !gone) old.push_back(file->path());
    }
    int removed = 0;
    for (const fs::path& file : old) removed += fs::remove(file, failure);
    return removed;
  }

  std::string where() const override { return folder_.string(); }

 private:
  fs::path path_of(const std::string& name) const {
    check_blob_name(name);
    return folder_ / name;
  }

  void make(const fs::path& name) const {
    std::error_code failure;
    fs::create_directories(folder_ / name, failure);
    if (failure) fail(ErrorCode::CannotWrite, "cannot create folder {}: {}", (folder_ / name).string(), failure.message());
  }

  fs::path folder_;
};

}  // namespace

void check_blob_name(std::string_view name) {
  constexpr std::string_view kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";
  const fs::path path(name);
  const bool inside = path.is_relative() && path == path.lexically_normal() && !path.empty() && *path.begin() != "..";
  check(inside && name.find_first_not_of(kAllowed) == name.npos && !name.ends_with('/') && name.find("//") == name.npos,
        "\"{}\" is not a name of stored bytes", std::string(name.substr(0, 200)));
}

std::unique_ptr<BlobStore> open_folder_blobs(const fs::path& folder) { return std::make_unique<FolderBlobs>(folder); }

}  // namespace flux2
