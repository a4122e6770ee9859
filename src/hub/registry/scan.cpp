#include "hub/registry/scan.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "hub/folder_layout.h"
#include "hub/remote/hub_cache.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr int kDeepest = 16;

bool is_below(const fs::path& path, const fs::path& root) {
  const auto [a, b] = std::mismatch(root.begin(), root.end(), path.begin(), path.end());
  return a == root.end();
}

// Pickle files are mentioned, because people would wonder why nothing happens.
bool is_pickle(const fs::path& path) {
  for (const char* extension : {".ckpt", ".pt", ".pth"})
    if (path.extension() == extension) return true;
  return false;
}

class Scan {
 public:
  Scan(const fs::path& folder, const std::function<bool(const fs::path&)>& at, const Log& log) : at_(at), log_(log) {
    std::error_code failure;
    root_ = fs::canonical(folder, failure);
    if (failure) fail(ErrorCode::NotFound, "{} does not exist", folder.string());
    if (!fs::is_directory(root_, failure))
      throw Error(ErrorCode::InvalidArgument, fmt::format("{} is not a folder", folder.string()),
                  Hint("{0} shows what a file is", {run_command("models identify FILE")}));
    // A snapshot consists of links to the blobs of the same repository.
    if (const auto snapshot = hub_snapshot_of(root_)) boundary_ = snapshot->repository_folder;
    else boundary_ = root_;
  }

  std::vector<Described> run() {
    visit(root_, 0);
    return std::move(found_);
  }

 private:
  bool inside(const fs::path& path) const {
    std::error_code failure;
    const fs::path real = fs::canonical(path, failure);
    return !failure && is_below(real, boundary_);
  }

  void visit(const fs::path& folder, int depth) {
    std::error_code failure;
    const fs::path real = fs::canonical(folder, failure);
    if (failure || depth > kDeepest || !is_below(real, boundary_) || !visited_.insert(real).second) return;
    if (at_ && !at_(folder)) throw Error(ErrorCode::Cancelled, "stopped");
    look_at(folder);
    for (const fs::path& inner : inner_folders(folder)) visit(inner, depth + 1);
  }

  void look_at(const fs::path& folder) {
    std::vector<fs::path> files = weight_files_in(folder);
    std::erase_if(files, [&](const fs::path& file) { return !inside(file); });
    std::error_code unreadable;
    const bool whole = has_weight_index(folder) || fs::is_regular_file(folder / "config.json", unreadable);
    if (!files.empty() && whole && (files.size() == 1 || has_weight_index(folder))) {
      add(folder);
    } else {
      for (const fs::path& file : files) add(file);
    }
    if (holds_tokenizer(folder)) add_tokenizer(folder);
    for (fs::directory_iterator entry(folder, unreadable), end; !unreadable && entry != end; entry.increment(unreadable))
      if (is_pickle(entry->path()) && inside(entry->path())) add(entry->path());
  }

  // In a hub cache, the snapshots are read, starting with that of a branch. Blobs have no names to recognise them by.
  std::vector<fs::path> inner_folders(const fs::path& folder) const {
    if (hub_repository_named(folder.filename().string()).empty()) return folders_in(folder);
    std::vector<fs::path> snapshots = folders_in(folder / "snapshots");
    std::string current;
    try {
      current = trimmed(read_text_file(folder / "refs/main"));
    } catch (const Error&) {  // fetched by commit
    }
    std::stable_partition(snapshots.begin(), snapshots.end(), [&](const fs::path& s) { return s.filename() == current; });
    return snapshots;
  }

  void add(const fs::path& path) {
    for (Described& part : identify(path, log_)) keep(std::move(part));
  }

  void add_tokenizer(const fs::path& folder) {
    const Component tokenizer{.kind = ComponentKind::Tokenizer, .path = folder, .evidence = {"tokenizer files"}};
    for (Described& part : describe(Recognition{.path = folder, .components = {tokenizer}})) keep(std::move(part));
  }

  void keep(Described part) {
    // Configurations may be the same in different models; weights are not.
    fs::path mark = part.record.path;
    for (const RecordedFile& f : part.record.files)
      if (mark == part.record.path || mark.extension() == ".json") mark = f.path;
    std::error_code failure;
    if (seen_.insert({part.type, fs::canonical(mark, failure)}).second) found_.push_back(std::move(part));
  }

  fs::path root_, boundary_;
  const std::function<bool(const fs::path&)>& at_;
  const Log& log_;
  std::set<fs::path> visited_;
  std::set<std::pair<std::string, fs::path>> seen_;
  std::vector<Described> found_;
};

}  // namespace

std::vector<Described> scan_folder(const fs::path& folder, const std::function<bool(const fs::path&)>& at, const Log& log) {
  return Scan(folder, at, log).run();
}

}  // namespace flux2
