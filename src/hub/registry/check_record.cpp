#include "hub/registry/check_record.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/sha256.h"
#include "hub/registry/describe.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

// Hashes every file; what differs from the recorded hash is said.
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

// Whether the header still says the same.
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

}  // namespace

std::string hash_of_files(const std::vector<RecordedFile>& files) {
  if (files.size() == 1) return files[0].sha256;
  std::string list;
  for (const RecordedFile& f : files) list += fmt::format("{}  {}\n", f.sha256, f.path.filename().string());
  return sha256(std::as_bytes(std::span(list)));
}

ModelRecord check_record(Registry& registry, ModelRecord record, const CheckOptions& options, const Log& log) {
  Glance found = glance_at_sizes(record);
  if (found.state == ModelState::Ready) {
    found.note = check_hashes(registry, record, options);
    if (found.note.empty()) record.sha256 = hash_of_files(record.files), use_known_hash(record);
    if (found.note.empty()) found.note = check_header(record, log);
    if (found.note.empty() && options.values && record.type != ModelType::Tokenizer) {
      const auto bad = find_bad_values(record.path, options.progress, log);
      if (!bad.empty()) found.note = fmt::format("not every weight is a number: {}", fmt::join(bad, ", "));
    }
    if (!found.note.empty()) found.state = ModelState::Damaged;
  }
  record.state = found.state;
  record.note = found.note;
  registry.update(record);
  return record;
}

}  // namespace flux2
