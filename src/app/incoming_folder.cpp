#include "app/incoming_folder.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <span>
#include <vector>

#include "base/atomic_file.h"
#include "base/error.h"
#include "base/json.h"
#include "base/own_file.h"
#include "base/path_exists.h"
#include "base/sha256.h"
#include "base/text.h"
#include "hub/registry/orphan_files.h"
#include "net/url.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr size_t kLongestName = 80;
constexpr const char* kRevision = "revision";  // the file that says of which revision the others are

// The name of the file, for people, and a part of the hash of the whole address.
std::string folder_name(const std::string& url) {
  std::string name = file_name_of(parse_url(url)).substr(0, kLongestName);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '_' && c != '.') c = '_';
  if (name.starts_with('.')) name.front() = '_';
  return name + "-" + sha256(std::as_bytes(std::span(url))).substr(0, 8);
}

std::string text_of(const fs::path& file) {
  try {
    return read_text_file(file, {.bytes = 16384});
  } catch (const Error&) {
    return {};  // there is none
  }
}

bool on_one_disk(const fs::path& a, const fs::path& b) {
  struct stat first {
  }, second{};
  return ::stat(a.c_str(), &first) == 0 && ::stat(b.c_str(), &second) == 0 && first.st_dev == second.st_dev;
}

void copy_and_delete(const fs::path& file, const fs::path& target, const CopyProgress& copying) {
  copy_files(std::vector<PlannedCopy>{PlannedCopy{file, target, fs::file_size(file)}}, copying);
  std::error_code failure;
  fs::remove(file, failure);
}

}  // namespace

IncomingFolder::IncomingFolder(const fs::path& data_folder, const std::string& url, const std::function<bool()>& cancelled,
                               const Log& log)
    : folder_(data_folder / "models" / kIncomingFolder / folder_name(url)),
      lock_(std::make_unique<FileLock>(folder_.string() + ".lock", cancelled, log)) {}

IncomingFolder::~IncomingFolder() {
  std::error_code failure;
  size_t others = 0;
  for (fs::directory_iterator entry(folder_, failure), end; !failure && entry != end; entry.increment(failure))
    others += entry->path().filename() != kRevision;
  if (others == 0) fs::remove(folder_ / kRevision, failure), fs::remove(folder_, failure);
  fs::remove(folder_.string() + ".lock", failure);  // while the lock is held; those who wait make a new one
}

void IncomingFolder::prepare(PlannedFile& file, const std::string& revision) const {
  std::error_code failure;
  fs::create_directories(folder_, failure);
  if (failure) fail(ErrorCode::CannotWrite, "cannot create folder {}: {}", folder_.string(), failure.message());
  if (revision.empty() || text_of(folder_ / kRevision) != revision) {
    fs::remove(file.target, failure);
    file.present = false;
    AtomicFile out(folder_ / kRevision);
    out.write(revision.data(), revision.size());
    out.commit();
  }
  const fs::path partial = file.target.string() + ".part", older = folder_.parent_path() / partial.filename();
  if (path_exists(partial) || !is_file(older)) return;
  fs::rename(older.string() + ".note", partial.string() + ".note", failure);  // first: without it the bytes are worth nothing
  fs::rename(older, partial, failure);
}

fs::path moved_to_free_name(const fs::path& file, const fs::path& folder, const CopyProgress& copying) {
  fs::create_directories(folder);
  const auto name = [&](int i) {
    return folder /
           (i == 1 ? file.filename() : fs::path(fmt::format("{}-{}{}", file.stem().string(), i, file.extension().string())));
  };
  const bool can_rename = on_one_disk(file, folder);
  for (int i = 1;; ++i) {
    fs::path target = name(i);
    if (can_rename) {
      if (rename_to_free_name(file, target)) return target;
    } else if (std::error_code failure; !fs::exists(fs::symlink_status(target, failure))) {
      copy_and_delete(file, target, copying);
      return target;
    }
  }
}

void move_over(const fs::path& file, const fs::path& target, const CopyProgress& copying) {
  fs::create_directories(target.parent_path());
  if (!on_one_disk(file, target.parent_path())) return copy_and_delete(file, target, copying);
  if (::rename(file.c_str(), target.c_str()) != 0)
    fail(ErrorCode::CannotWrite, "cannot write {}: {}", target.string(), std::strerror(errno));
}

}  // namespace flux2
