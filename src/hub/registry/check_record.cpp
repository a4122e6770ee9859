#include "hub/registry/check_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/sha256.h"
#include "hub/registry/describe.h"
#include "weights/quantised_values.h"
#include "weights/read_values.h"
#include "weights/weight_source.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kPiece = 1 << 18;  // elements at a time, a multiple of every block
constexpr size_t kNamed = 10;

// The index of the first value that is not a finite number, or −1.
int64_t first_bad(const StoredTensor& t) {
  std::vector<float> values;
  const auto look = [&](int64_t begin, int64_t count) -> int64_t {
    for (int64_t i = 0; i < count; ++i)
      if (!std::isfinite(values[static_cast<size_t>(i)])) return begin + i;
    return -1;
  };
  if (t.quantised) {
    const int64_t rows = t.shape[0], columns = t.shape[1];
    const int64_t step = std::max<int64_t>(1, kPiece / std::max<int64_t>(1, columns));
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t end = std::min(rows, row + step);
      values.resize(static_cast<size_t>((end - row) * columns));
      t.quantised->rows(row, end, values.data());
      if (const int64_t bad = look(row * columns, (end - row) * columns); bad >= 0) return bad;
    }
    return -1;
  }
  if (!t.dtype || !is_readable(*t.dtype)) return -1;
  values.resize(kPiece);
  for (int64_t at = 0; at < t.shape.numel(); at += kPiece) {
    const int64_t count = std::min(kPiece, t.shape.numel() - at);
    read_values(*t.dtype, t.bytes.data() + bytes_for(*t.dtype, at), count, values.data());
    if (const int64_t bad = look(at, count); bad >= 0) return bad;
  }
  return -1;
}

// Hashes every file and reports those that differ from the recorded hash.
std::string check_hashes(Registry& registry, ModelRecord& record, const CheckOptions& options) {
  std::string problem;
  uint64_t done = 0;
  for (RecordedFile& f : record.files) {
    std::optional<std::string> hash = options.quick ? registry.known_hash(f.path) : std::nullopt;
    if (!hash) {
      hash = hash_file(f.path, [&](uint64_t at, uint64_t, const std::string& file) {
        return !options.progress || options.progress(done + at, record.bytes, file);
      });
      registry.remember_hash(f.path, *hash);
    }
    done += f.bytes;
    if (f.sha256.empty()) f.sha256 = *hash;
    else if (f.sha256 != *hash && problem.empty())
      problem = fmt::format("{} has changed: its SHA-256 is {}…, {}… was registered", f.path.string(), hash->substr(0, 12),
                            f.sha256.substr(0, 12));
  }
  return problem;
}

// Whether the header still describes the same model.
std::string check_header(const ModelRecord& record, const Log& log) {
  if (record.type == ModelType::Tokenizer) return {};
  for (const Described& part : identify(record.path, log)) {
    if (!part.usable() && part.record.type == record.type) return part.problem;
    if (part.record.type == record.type)
      return part.record.probe.hidden == record.probe.hidden || record.probe.hidden == 0
                 ? std::string()
                 : fmt::format("its width is {}; {} was registered", part.record.probe.hidden, record.probe.hidden);
  }
  return fmt::format("it is no longer of type {}", name_of(record.type));
}

bool is_same_file(const RecordedFile& a, const RecordedFile& b) { return a.path == b.path && a.bytes == b.bytes; }

// Reading the files takes minutes, in which others may edit the record, install the model again or remove it. So what was found
// is added to the record as it is now, if that still has these files.
ModelRecord stored_result(Registry& registry, const ModelRecord& checked) {
  const auto now = registry.find(checked.key);
  if (!now || now->path != checked.path || !std::ranges::equal(now->files, checked.files, is_same_file)) return checked;
  ModelRecord updated = *now;
  updated.files = checked.files;
  updated.sha256 = checked.sha256;
  if (!updated.sha256.empty()) use_known_hash(updated);
  updated.state = checked.state;
  updated.note = checked.note;
  registry.update(updated);
  return updated;
}

}  // namespace

QuickCheck check_sizes(const ModelRecord& record) {
  size_t missing = 0;
  std::string first;
  for (const RecordedFile& f : record.files) {
    std::error_code failure;
    const uint64_t bytes = fs::file_size(f.path, failure);
    if (failure) {
      if (missing++ == 0) first = f.path.string();
    } else if (bytes != f.bytes) {
      return {ModelState::Damaged, fmt::format("{} has {} bytes; {} were registered", f.path.string(), bytes, f.bytes)};
    }
  }
  std::error_code failure;
  if (missing == record.files.size() && (missing > 0 || !fs::exists(record.path, failure)))
    return {ModelState::Missing, fmt::format("{} is not there", record.path.string())};
  if (missing > 0) return {ModelState::Incomplete, fmt::format("{} is not there", first)};
  return {};
}

QuickCheck quick_check(const ModelRecord& record) {
  const QuickCheck sizes = check_sizes(record);
  if (sizes.state != ModelState::Ready) return sizes;
  const bool was_gone = record.state == ModelState::Missing || record.state == ModelState::Incomplete;
  return was_gone ? QuickCheck{} : QuickCheck{record.state, record.note};
}

std::vector<std::string> find_bad_values(const std::filesystem::path& path, const CopyProgress& progress, const Log& log) {
  const auto source = open_weights(path, log);
  std::vector<std::string> found;
  uint64_t done = 0;
  const uint64_t total = source->total_bytes();
  for (const StoredTensor& t : source->tensors()) {
    if (progress && !progress(done, total, t.name)) throw Error(ErrorCode::Cancelled, "stopped");
    if (const int64_t bad = first_bad(t); bad >= 0) found.push_back(fmt::format("{} at {}", t.name, bad));
    if (found.size() >= kNamed) break;
    done += t.bytes.size();
    if (t.file) t.file->drop(static_cast<size_t>(t.bytes.data() - t.file->bytes().data()), t.bytes.size());
  }
  return found;
}

std::string hash_of_files(const std::vector<RecordedFile>& files) {
  if (files.size() == 1) return files[0].sha256;
  std::string list;
  for (const RecordedFile& f : files) list += fmt::format("{}  {}\n", f.sha256, f.path.filename().string());
  return sha256(std::as_bytes(std::span(list)));
}

ModelRecord check_record(Registry& registry, ModelRecord record, const CheckOptions& options, const Log& log) {
  QuickCheck found = check_sizes(record);
  if (found.state == ModelState::Ready) {
    found.note = check_hashes(registry, record, options);
    if (found.note.empty()) record.sha256 = hash_of_files(record.files);
    if (found.note.empty()) found.note = check_header(record, log);
    if (found.note.empty() && options.values && record.type != ModelType::Tokenizer) {
      const auto bad = find_bad_values(record.path, options.progress, log);
      if (!bad.empty()) found.note = fmt::format("not every weight is a number: {}", fmt::join(bad, ", "));
    }
    if (!found.note.empty()) found.state = ModelState::Damaged;
  }
  record.state = found.state;
  record.note = found.note;
  return stored_result(registry, record);
}

}  // namespace flux2
