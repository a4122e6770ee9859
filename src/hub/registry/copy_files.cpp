#include "hub/registry/copy_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/file_hash.h"
#include "base/resumable_file.h"
#include "base/sha256.h"
#include "hub/registry/part_files.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMarkEvery = 64 << 20;

double gib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

void go_on(const CopyProgress& progress, uint64_t done, uint64_t total, const fs::path& file) {
  if (progress && !progress(done, total, file.filename().string())) throw Error(ErrorCode::Cancelled, "stopped");
}

bool same_bytes(const fs::path& a, const fs::path& b, uint64_t bytes, const CopyProgress& progress) {
  std::ifstream first(a, std::ios::binary), second(b, std::ios::binary);
  if (!first || !second) return false;
  std::vector<char> one(1 << 20), other(1 << 20);
  uint64_t at = 0;
  do {
    first.read(one.data(), static_cast<std::streamsize>(one.size()));
    second.read(other.data(), static_cast<std::streamsize>(other.size()));
    const std::streamsize count = first.gcount();
    if (second.gcount() != count || std::memcmp(one.data(), other.data(), static_cast<size_t>(count)) != 0) return false;
    at += static_cast<uint64_t>(count);
    go_on(progress, at, bytes, a);
  } while (first && second);
  return true;
}

void set_time(const fs::path& file, fs::file_time_type changed) {
  std::error_code refused;  // then is_copied() compares the bytes
  fs::last_write_time(file, changed, refused);
}

// Changes whenever the source changes.
std::string fingerprint(const PlannedCopy& copy) {
  return fmt::format("{}\n{}\n{}", fs::absolute(copy.from).string(), copy.bytes,
                     fs::last_write_time(copy.from).time_since_epoch().count());
}

std::string copy_one(const PlannedCopy& copy, uint64_t before, uint64_t total, const CopyProgress& progress) {
  ResumableFile out(copy.to, fingerprint(copy));
  const fs::file_time_type changed = fs::last_write_time(copy.from);
  Sha256 hash;
  uint64_t at = 0, marked = out.resumed_from();
  read_pieces(copy.from, [&](std::span<const std::byte> bytes) {
    hash.add(bytes);
    // The bytes that an earlier attempt wrote are read only for the hash.
    const uint64_t have = out.size() > at ? std::min<uint64_t>(out.size() - at, bytes.size()) : 0;
    out.write(bytes.subspan(have));
    at += bytes.size();
    if (out.size() - marked >= kMarkEvery) out.mark(), marked = out.size();
    go_on(progress, before + at, total, copy.from);
  });
  if (at != copy.bytes) fail(ErrorCode::BadFile, "{} changed while it was copied", copy.from.string());
  out.commit();
  set_time(copy.to, changed);
  return hash.hex();
}

void check_space(const std::vector<PlannedCopy>& copies, const std::vector<bool>& copied) {
  uint64_t needed = 0;
  for (size_t i = 0; i < copies.size(); ++i)
    if (!copied[i]) needed += copies[i].bytes - std::min(copies[i].bytes, partial_bytes(copies[i].to));
  if (needed == 0) return;
  fs::path folder = copies.front().to.parent_path();
  std::error_code failure;
  while (!fs::exists(folder, failure) && folder.has_parent_path() && folder != folder.parent_path())
    folder = folder.parent_path();
  const fs::space_info space = fs::space(folder, failure);
  if (!failure && space.available < needed + needed / 10)
    throw Error(
        ErrorCode::CannotWrite,
        fmt::format("{:.1f} GiB are needed in {}, including a reserve of ten per cent; {:.1f} GiB are free",
                    gib(needed + needed / 10), folder.string(), gib(space.available)),
        Hint("use the files where they are with {0}, or name another data folder with FLUX2_HOME", {set_option("in_place")}));
}

}  // namespace

std::vector<PlannedCopy> plan_copies(const fs::path& from, const fs::path& target) {
  std::vector<PlannedCopy> copies;
  std::error_code failure;
  const auto add = [&](const fs::path& file, const fs::path& to) {
    const uint64_t bytes = fs::file_size(file, failure);
    if (failure) fail(ErrorCode::NotFound, "cannot read {}: {}", file.string(), failure.message());
    copies.push_back({file, to, bytes});
  };
  if (!fs::is_directory(from)) {
    for (const RecordedFile& f : part_files(from, ModelType::Vae))  // the series, without what lies beside it
      add(f.path, f.path == from ? target : target.parent_path() / f.path.filename());
    return copies;
  }
  std::set<fs::path> linked;
  const auto leads_back = [&](const fs::path& link) {
    const fs::path place = fs::weakly_canonical(link.parent_path(), failure), there = fs::weakly_canonical(link, failure);
    return std::mismatch(there.begin(), there.end(), place.begin(), place.end()).first == there.end() ||
           !linked.insert(there).second;
  };
  const auto options = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator entry(from, options), end; entry != end; ++entry) {
    const fs::path path = entry->path();
    const bool is_hidden = path.filename().string().starts_with(".");
    if (entry->is_directory(failure)) {
      if (is_hidden || (entry->is_symlink(failure) && leads_back(path))) entry.disable_recursion_pending();
    } else if (is_hidden) {
      continue;
    } else if (entry->is_regular_file(failure) && is_model_file(path)) {
      add(path, target / path.lexically_relative(from));
    }
  }
  std::sort(copies.begin(), copies.end(), [](const PlannedCopy& a, const PlannedCopy& b) { return a.to < b.to; });
  return copies;
}

bool is_copied(const PlannedCopy& copy, const CopyProgress& progress) {
  std::error_code missing;
  if (!fs::is_regular_file(copy.to, missing) || fs::file_size(copy.to, missing) != copy.bytes || missing) return false;
  const fs::file_time_type changed = fs::last_write_time(copy.from, missing);
  if (fs::last_write_time(copy.to, missing) == changed) return true;
  if (!same_bytes(copy.from, copy.to, copy.bytes, progress)) return false;
  set_time(copy.to, changed);
  return true;
}

std::vector<RecordedFile> copy_files(const std::vector<PlannedCopy>& copies, const CopyProgress& progress) {
  std::vector<bool> copied;
  copied.reserve(copies.size());
  for (const PlannedCopy& c : copies) copied.push_back(is_copied(c, progress));
  check_space(copies, copied);
  uint64_t done = 0, total = 0;
  for (const PlannedCopy& c : copies) total += c.bytes;
  std::vector<RecordedFile> files;
  for (size_t i = 0; i < copies.size(); ++i) {
    const PlannedCopy& c = copies[i];
    const auto counted = [&](uint64_t at, uint64_t, const std::string&) {
      return !progress || progress(done + at, total, c.from.filename().string());
    };
    if (copied[i]) remove_leftover_note(c.to);
    const std::string hash = copied[i] ? hash_file(c.to, counted) : copy_one(c, done, total, progress);
    files.push_back({c.to, c.bytes, hash});
    done += c.bytes;
  }
  return files;
}

std::string hash_file(const fs::path& file, const CopyProgress& progress) {
  Sha256 hash;
  uint64_t at = 0;
  std::error_code unknown;
  const uint64_t total = fs::file_size(file, unknown);
  read_pieces(file, [&](std::span<const std::byte> bytes) {
    hash.add(bytes);
    at += bytes.size();
    go_on(progress, at, total, file);
  });
  return hash.hex();
}

}  // namespace flux2
