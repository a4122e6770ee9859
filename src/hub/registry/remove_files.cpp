#include "hub/registry/remove_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/path_exists.h"
#include "hub/remote/file_lock.h"
#include "hub/remote/hub_cache.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

// Whether a file is inside a folder. Links of its parent folders are resolved; the file itself may be a link.
bool lies_below(const fs::path& file, const fs::path& folder) {
  std::error_code failure;
  const fs::path real = fs::weakly_canonical(file.parent_path(), failure), root = fs::weakly_canonical(folder, failure);
  const auto [a, b] = std::mismatch(root.begin(), root.end(), real.begin(), real.end());
  return !folder.empty() && a == root.end();
}

fs::path blob_of(const fs::path& link) {
  std::error_code failure;
  const fs::path target = fs::read_symlink(link, failure);
  return failure ? fs::path() : (link.parent_path() / target).lexically_normal();
}

// Blobs that snapshots of the repository still link to, not counting the links that will be deleted.
std::set<fs::path> blobs_in_use(const HubSnapshot& snapshot, const std::vector<fs::path>& going) {
  std::set<fs::path> used;
  std::error_code failure;
  for (fs::recursive_directory_iterator entry(snapshot.repository_folder / "snapshots", failure), end; !failure && entry != end;
       entry.increment(failure))
    if (entry->is_symlink(failure) && std::find(going.begin(), going.end(), entry->path()) == going.end())
      used.insert(blob_of(entry->path()));
  return used;
}

// The file that Python's huggingface_hub locks while it writes a blob.
fs::path lock_of(const fs::path& blob) {
  const fs::path repository = blob.parent_path().parent_path();
  return repository.parent_path() / ".locks" / repository.filename() / (blob.filename().string() + ".lock");
}

void remove_one(const fs::path& path) {
  std::error_code failure;
  fs::remove(path, failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot delete {}: {}", path.string(), failure.message());
}

}  // namespace

Removal plan_removal(const ModelRecord& record, const std::vector<ModelRecord>& all, const fs::path& data_folder) {
  const auto snapshot = hub_snapshot_of(record.path);
  const fs::path top = snapshot ? snapshot->repository_folder : data_folder / "models";
  if (!lies_below(record.path, top))
    throw Error(ErrorCode::InvalidArgument, fmt::format("{} was registered in place, so its files are not deleted", record.name),
                Hint("run without {0} to unregister it, and delete the files yourself", {unset_option("files")}));
  std::set<fs::path> needed;
  for (const ModelRecord& other : all)
    if (other.key != record.key)
      for (const RecordedFile& f : other.files) needed.insert(real_place(f.path));
  Removal removal;
  for (const RecordedFile& f : record.files) {
    std::error_code failure;
    if (needed.contains(real_place(f.path)))
      removal.kept.push_back(fmt::format("{} belongs to another model too", f.path.string()));
    else if (!lies_below(f.path, top)) removal.kept.push_back(fmt::format("{} lies elsewhere", f.path.string()));
    else if (fs::exists(fs::symlink_status(f.path, failure))) removal.files.push_back(f.path);
  }
  for (const fs::path& file : removal.files) {
    std::error_code failure;
    const uint64_t bytes = fs::file_size(file, failure);
    const fs::path blob = snapshot ? blob_of(file) : fs::path();
    if (!blob.empty() && blob.parent_path() == snapshot->repository_folder / "blobs") {
      if (blobs_in_use(*snapshot, removal.files).contains(blob)) continue;  // another snapshot's
      removal.blobs.push_back(blob);
    }
    if (!failure) removal.bytes += bytes;
  }
  return removal;
}

void remove_files(const Removal& removal, const fs::path& data_folder) {
  for (const fs::path& file : removal.files) {
    const auto snapshot = hub_snapshot_of(file);
    remove_one(file);
    remove_empty_folders(file.parent_path(), snapshot ? snapshot->repository_folder / "snapshots" : data_folder / "models");
  }
  for (const fs::path& blob : removal.blobs) {
    const FileLock lock(lock_of(blob), {}, {});
    remove_one(blob);
  }
}

void remove_empty_folders(fs::path folder, const fs::path& top) {
  std::error_code failure;
  while (folder != top && lies_below(folder, top) && fs::is_empty(folder, failure) && !failure) {
    fs::remove(folder, failure);
    folder = folder.parent_path();
  }
}

}  // namespace flux2
