#include "hub/remote/hub_cache.h"

#include <unistd.h>

#include <algorithm>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "base/text.h"
#include "hub/remote/safe_path.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

std::string folder_name(std::string repository) {
  for (size_t slash; (slash = repository.find('/')) != repository.npos;) repository.replace(slash, 1, "--");
  return "models--" + repository;
}

void make_folder(const fs::path& folder) {
  std::error_code failure;
  fs::create_directories(folder, failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot create folder {}: {}", folder.string(), failure.message());
}

void write_text(const fs::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

// Below the snapshot of a commit; both come from outside.
fs::path entry(const fs::path& parent, const std::string& commit, const std::string& path) {
  if (!is_commit(commit) || !is_safe_path(path))
    fail(ErrorCode::Network, "{} at {} is not a name the cache can hold", printable(path), printable(commit));
  return parent / commit / path;
}

}  // namespace

bool is_file_of_size(const fs::path& path, uint64_t size) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) && fs::file_size(path, ignored) == size;
}

HubCache::HubCache(const fs::path& cache, const std::string& repository)
    : cache_(cache), folder_(cache / folder_name(repository)), locks_(cache / ".locks" / folder_name(repository)) {
  if (cache.empty())
    throw Error(ErrorCode::CannotWrite, "there is no cache folder to download to",
                "set HF_HOME, or HOME, or give a folder for plain files");
}

std::optional<std::string> HubCache::commit_of(const std::string& revision) const {
  if (is_commit(revision)) return revision;
  const fs::path ref = folder_ / "refs" / revision;
  std::error_code ignored;
  if (!is_safe_path(revision) || !fs::is_regular_file(ref, ignored) || fs::file_size(ref, ignored) > 4096) return std::nullopt;
  std::string commit(trimmed(read_text_file(ref)));
  return is_commit(commit) ? std::optional(commit) : std::nullopt;
}

std::vector<RemoteFile> HubCache::files(const std::string& commit) const {
  std::vector<RemoteFile> found;
  std::error_code ignored;
  const fs::path root = snapshot(commit);
  for (auto it = fs::recursive_directory_iterator(root, ignored); it != fs::recursive_directory_iterator();
       it.increment(ignored)) {
    if (!it->is_regular_file(ignored)) continue;  // through the link: one whose blob is gone is no file
    RemoteFile file{.path = it->path().lexically_relative(root).generic_string(), .size = it->file_size(ignored)};
    if (it->is_symlink(ignored)) {
      const std::string blob = fs::read_symlink(it->path(), ignored).filename().string();
      if (is_blob_id(blob)) file.etag = blob;
    }
    found.push_back(std::move(file));
  }
  std::ranges::sort(found, {}, &RemoteFile::path);
  return found;
}

bool HubCache::is_known_absent(const std::string& commit, const std::string& path) const {
  std::error_code ignored;
  return is_commit(commit) && is_safe_path(path) && fs::is_regular_file(folder_ / ".no_exist" / commit / path, ignored);
}

void HubCache::prepare() const {
  make_folder(folder_ / "blobs");
  make_folder(locks_);
  std::error_code ignored;
  if (const fs::path tag = cache_ / "CACHEDIR.TAG"; !fs::exists(tag, ignored))
    write_text(tag, "Signature: 8a477f597d28d172789f06886806bc55\n# Downloaded models; everything here can be fetched again.\n");
}

void HubCache::link(const std::string& commit, const std::string& path, const std::string& etag) const {
  const fs::path name = entry(folder_ / "snapshots", commit, path);
  make_folder(name.parent_path());
  fs::path target = fs::path("../..");
  for (const char c : path)
    if (c == '/') target /= "..";
  target = target / "blobs" / etag;
  std::error_code failure;
  if (fs::read_symlink(name, failure) == target) return;
  const fs::path temporary = name.parent_path() / fmt::format(".{}.{}.link", name.filename().string(), ::getpid());
  fs::remove(temporary, failure);
  fs::create_symlink(target, temporary, failure);
  if (failure) return move_in(commit, path, blob(etag));  // no symlinks on this file system
  fs::rename(temporary, name, failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot write {}: {}", name.string(), failure.message());
}

void HubCache::move_in(const std::string& commit, const std::string& path, const fs::path& file) const {
  const fs::path name = entry(folder_ / "snapshots", commit, path);
  make_folder(name.parent_path());
  std::error_code failure;
  fs::rename(file, name, failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot write {}: {}", name.string(), failure.message());
}

void HubCache::write_ref(const std::string& revision, const std::string& commit) const {
  if (is_commit(revision) || !is_safe_path(revision) || commit_of(revision) == commit) return;
  write_text(folder_ / "refs" / revision, commit);
}

void HubCache::note_absent(const std::string& commit, const std::string& path) const {
  if (is_commit(commit)) write_text(entry(folder_ / ".no_exist", commit, path), "");
}

}  // namespace flux2
