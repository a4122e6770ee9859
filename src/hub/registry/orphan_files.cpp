#include "hub/registry/orphan_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>

#include "base/error.h"
#include "base/own_file.h"
#include "hub/registry/remove_files.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

fs::path full_path(const fs::path& path) { return fs::absolute(path).lexically_normal(); }

bool is_below(const fs::path& path, const fs::path& folder) {
  const auto [a, b] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return a == folder.end() && b != path.end();
}

// The folders that models are sorted into by their kind.
bool is_for_one_kind(const fs::path& folder) {
  static const std::set<std::string> kNames = {"checkpoints", "classifiers", "clip",           "clip_vision", "diffusion_models",
                                               "ipadapter",   "ipadapters",  "lora",           "loras",       "text_encoders",
                                               "tokenizers",  "unet",        "upscale_models", "vae",         kIncomingFolder};
  return kNames.contains(folder.filename().string());
}

// The partial file that the file is, or is a note about. Empty for another file.
fs::path partial_of(const fs::path& file) {
  if (is_partial_file(file)) return file;
  const std::string name = file.filename().string();
  const bool is_note = name.ends_with(".partial.json") || name.ends_with(".part.note");
  return is_note ? file.parent_path() / file.stem() : fs::path();
}

bool is_partial(const fs::path& file) { return !partial_of(file).empty(); }

bool is_incoming(const fs::path& path) { return path.parent_path().filename() == kIncomingFolder; }

// The lock of those who download into a folder of .incoming.
fs::path lock_of_incoming(const fs::path& folder) { return folder.string() + ".lock"; }

// Taken again by the next download from that address.
bool is_lock(const fs::path& file) { return file.extension() == ".lock" && is_incoming(file); }

bool is_weights(const fs::path& file) {
  for (const char* extension : {".safetensors", ".gguf", ".ckpt", ".pt", ".pth"})
    if (file.extension() == extension) return true;
  return false;
}

// The folder of models without links. Empty if there is none.
fs::path models_folder(const fs::path& data_folder) {
  std::error_code failure;
  fs::path folder = data_folder.empty() ? fs::path() : fs::canonical(data_folder / "models", failure);
  return failure || !fs::is_directory(folder, failure) ? fs::path() : folder;
}

class Search {
 public:
  Search(const std::vector<ModelRecord>& records, const fs::path& data_folder, fs::path root) : root_(std::move(root)) {
    const fs::path named = full_path(data_folder / "models");
    // A file of a record counts under every name that it can have here: as it was registered, and without links.
    const auto add = [&](const fs::path& path) {
      const fs::path full = full_path(path);
      used_.insert(full);
      if (is_below(full, named)) used_.insert(root_ / full.lexically_relative(named));
      std::error_code failure;
      if (const fs::path real = fs::weakly_canonical(full, failure); !failure) used_.insert(real);
    };
    for (const ModelRecord& r : records) {
      add(r.path);
      for (const RecordedFile& f : r.files) add(f.path);
    }
  }

  std::vector<OrphanFiles> run() {
    if (!root_.empty() && !is_used(root_)) visit(root_);
    std::sort(found_.begin(), found_.end(), [](const OrphanFiles& a, const OrphanFiles& b) { return a.path < b.path; });
    return std::move(found_);
  }

 private:
  bool is_used(const fs::path& path) const {
    return std::any_of(used_.begin(), used_.end(), [&](const fs::path& one) { return path == one || is_below(path, one); });
  }
  bool holds_used(const fs::path& folder) const {
    return std::any_of(used_.begin(), used_.end(), [&](const fs::path& one) { return is_below(one, folder); });
  }

  void visit(const fs::path& folder) {
    const bool shared = folder == root_ || holds_used(folder);
    std::error_code failure;
    for (fs::directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure)) {
      const fs::path& path = entry->path();
      std::error_code unreadable;
      const bool is_folder = fs::is_directory(entry->symlink_status(unreadable));
      if (is_used(path) || is_lock(path)) continue;
      if (is_folder && (holds_used(path) || (folder == root_ && is_for_one_kind(path)))) visit(path);
      else if (is_folder || !shared || is_weights(path) || is_partial(path)) found_.push_back(measured(path, is_folder));
    }
  }

  static OrphanFiles measured(const fs::path& path, bool is_folder) {
    OrphanFiles one{.path = path,
                    .is_folder = is_folder,
                    .is_partial = is_incoming(path) || (!is_folder && is_partial(path)),
                    .in_use = is_being_written(path)};
    const auto count = [&](const fs::path& file) {
      std::error_code failure;
      const fs::file_status status = fs::symlink_status(file, failure);
      if (fs::is_directory(status)) return;
      ++one.files;
      one.in_use = one.in_use || is_being_written(file);
      if (const uint64_t bytes = fs::is_regular_file(status) ? fs::file_size(file, failure) : 0; !failure) one.bytes += bytes;
    };
    if (!is_folder) count(path);
    std::error_code failure;
    if (is_folder)
      for (fs::recursive_directory_iterator entry(path, failure), end; !failure && entry != end; entry.increment(failure))
        count(entry->path());
    return one;
  }

  fs::path root_;
  std::set<fs::path> used_;
  std::vector<OrphanFiles> found_;
};

// The locks that installations take on what they write. While they are held, nobody begins to write what is being deleted.
class WriterLocks {
 public:
  WriterLocks() = default;
  WriterLocks(const WriterLocks&) = delete;
  WriterLocks& operator=(const WriterLocks&) = delete;
  ~WriterLocks() {
    for (const fs::path& file : made_) ::unlink(file.c_str());  // while the lock is held, as those who download do
    for (const int fd : held_) ::close(fd);
  }

  // Throws InvalidArgument if an installation has one of them.
  void take(const OrphanFiles& one) {
    if (one.is_folder && is_incoming(one.path)) take_folder(one.path);
    if (!one.is_folder) return take_file(one.path);
    std::error_code failure;
    for (fs::recursive_directory_iterator entry(one.path, failure), end; !failure && entry != end; entry.increment(failure))
      take_file(entry->path());
  }

 private:
  [[noreturn]] static void refuse(const fs::path& path) {
    throw Error(ErrorCode::InvalidArgument,
                fmt::format("an installation that is under way is writing {}, so nothing was deleted", path.string()),
                "wait until it has ended, or stop it");
  }

  static bool is_free(int fd) { return ::flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

  void take_folder(const fs::path& folder) {
    const fs::path lock = lock_of_incoming(folder);
    do {
      held_.push_back(open_own_file(lock));
      if (!is_free(held_.back())) refuse(folder);
    } while (!is_named(lock, held_.back()));  // whoever had it has just ended
    made_.push_back(lock);
  }

  void take_file(const fs::path& file) {
    const fs::path partial = partial_of(file);
    if (partial.empty() || !taken_.insert(partial).second) return;
    const int fd = ::open(partial.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) return;  // a link, or gone
    held_.push_back(fd);
    if (!is_free(fd)) refuse(partial);
  }

  std::vector<int> held_;
  std::set<fs::path> taken_;    // partial files
  std::vector<fs::path> made_;  // locks of folders
};

}  // namespace

bool is_being_written(const fs::path& path) {
  for (const fs::path& one : {path, path.parent_path()})
    if (is_incoming(one) && is_locked(lock_of_incoming(one))) return true;
  const fs::path partial = partial_of(path);
  return !partial.empty() && is_locked(partial);
}

bool is_partial_file(const fs::path& file) {
  const std::string name = file.filename().string();
  return name.ends_with(".partial") || name.ends_with(".part");
}

std::vector<OrphanFiles> orphan_files(const std::vector<ModelRecord>& records, const fs::path& data_folder) {
  return Search(records, data_folder, models_folder(data_folder)).run();
}

std::vector<OrphanFiles> remove_orphans(const std::vector<fs::path>& paths, const std::vector<ModelRecord>& records,
                                        const fs::path& data_folder) {
  const std::vector<OrphanFiles> known = orphan_files(records, data_folder);
  std::vector<OrphanFiles> chosen;
  for (const fs::path& path : paths) {
    const auto found = std::find_if(known.begin(), known.end(), [&](const OrphanFiles& one) { return one.path == path; });
    if (found == known.end())
      throw Error(ErrorCode::InvalidArgument,
                  fmt::format("{} is not in the list of files that belong to no model, so nothing was deleted", path.string()),
                  "read the list again; it may have changed");
    chosen.push_back(*found);
  }
  {
    WriterLocks locks;
    for (const OrphanFiles& one : chosen) locks.take(one);
    for (const OrphanFiles& one : chosen) {
      std::error_code failure;
      fs::remove_all(one.path, failure);  // deletes links, not what they lead to
      if (failure) fail(ErrorCode::CannotWrite, "cannot delete {}: {}", one.path.string(), failure.message());
    }
  }
  const fs::path root = models_folder(data_folder);
  for (const OrphanFiles& one : chosen) remove_empty_folders(one.path.parent_path(), root);
  return chosen;
}

}  // namespace flux2
