#include "hub/registry/orphan_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "base/error.h"
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

bool is_partial(const fs::path& file) {
  const std::string name = file.filename().string();
  return is_partial_file(file) || name.ends_with(".partial.json") || name.ends_with(".part.note");
}

// Taken again by the next download from that address.
bool is_lock(const fs::path& file) { return file.extension() == ".lock" && file.parent_path().filename() == kIncomingFolder; }

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
    const bool is_incoming = path.parent_path().filename() == kIncomingFolder;
    OrphanFiles one{.path = path, .is_folder = is_folder, .is_partial = is_incoming || (!is_folder && is_partial(path))};
    const auto count = [&](const fs::path& file) {
      std::error_code failure;
      const fs::file_status status = fs::symlink_status(file, failure);
      if (fs::is_directory(status)) return;
      ++one.files;
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

}  // namespace

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
  const fs::path root = models_folder(data_folder);
  for (const OrphanFiles& one : chosen) {
    std::error_code failure;
    fs::remove_all(one.path, failure);  // deletes links, not what they lead to
    if (failure) fail(ErrorCode::CannotWrite, "cannot delete {}: {}", one.path.string(), failure.message());
    remove_empty_folders(one.path.parent_path(), root);
  }
  return chosen;
}

}  // namespace flux2
