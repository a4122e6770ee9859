#include "hub/remote/hub_cache.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

bool is_reserved(std::string_view name) {
  std::string stem(name.substr(0, name.find('.')));
  std::ranges::transform(stem, stem.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (stem == "CON" || stem == "PRN" || stem == "AUX" || stem == "NUL") return true;
  return stem.size() == 4 && (stem.starts_with("COM") || stem.starts_with("LPT")) && stem[3] >= '1' && stem[3] <= '9';
}

bool is_safe_name(std::string_view name) {
  if (name.empty() || name.size() > 255 || name == "." || name == ".." || is_reserved(name)) return false;
  return std::ranges::none_of(name, [](unsigned char c) { return c < 0x20 || c == 0x7f || c == '\\' || c == ':'; });
}

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
    fail(ErrorCode::Network, "{} at {} is not a valid name in the cache", printable(path), printable(commit));
  return parent / commit / path;
}

}  // namespace

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > 1024) return false;
  for (size_t at = 0; at <= path.size();) {
    const size_t slash = std::min(path.find('/', at), path.size());
    if (!is_safe_name(path.substr(at, slash - at))) return false;
    at = slash + 1;
  }
  return true;
}

bool is_hex(std::string_view text, size_t digits) {
  return text.size() == digits && text.find_first_not_of("0123456789abcdef") == text.npos;
}

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
  fs::create_symlink(target, name, failure);
  if (!failure) return;
  if (failure != std::errc::file_exists) return move_in(commit, path, blob(etag));  // no symlinks on this file system
  // An old link is replaced in one step; a killed process leaves the new one under its temporary name, which the next one takes.
  const fs::path temporary = name.parent_path() / fmt::format(".{}.link", name.filename().string());
  fs::remove(temporary, failure);
  fs::create_symlink(target, temporary, failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot write {}: {}", temporary.string(), failure.message());
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
  if (is_commit(revision) || !is_safe_path(revision)) return;
  const fs::path ref = folder_ / "refs" / revision;
  if (commit_of(revision) != commit) write_text(ref, commit);
  // Files that are brought at the same time all write it. A killed process may have left one of its drafts beside the finished
  // ref.
  else remove_stale_temporaries(ref.parent_path());
}

void HubCache::note_absent(const std::string& commit, const std::string& path) const {
  if (is_commit(commit)) write_text(entry(folder_ / ".no_exist", commit, path), "");
}

std::string hub_repository_named(const std::string& folder_name) {
  constexpr std::string_view kStart = "models--";
  if (!folder_name.starts_with(kStart)) return {};
  std::string id = folder_name.substr(kStart.size());
  if (const size_t dashes = id.find("--"); dashes != std::string::npos) id.replace(dashes, 2, "/");
  return id;
}

std::optional<HubSnapshot> hub_snapshot_of(const fs::path& path) {
  const fs::path whole = fs::absolute(path).lexically_normal();
  fs::path folder;
  std::vector<fs::path> parts(whole.begin(), whole.end());
  for (size_t i = 0; i + 2 < parts.size(); ++i) {
    folder /= parts[i];
    const std::string repository = hub_repository_named(parts[i].string());
    if (!repository.empty() && parts[i + 1] == "snapshots") return HubSnapshot{folder, repository, parts[i + 2].string()};
  }
  return std::nullopt;
}

std::string hub_hash_of(const fs::path& file) {
  std::error_code failure;
  const fs::path target = fs::read_symlink(file, failure);
  if (failure || target.parent_path().filename() != "blobs" || !hub_snapshot_of(file)) return {};
  const std::string name = target.filename().string();
  return is_hex(name, 64) ? name : std::string();
}

}  // namespace flux2
