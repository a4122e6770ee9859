#include "hub/registry/relocate.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "hub/registry/describe.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

bool is_same_kind(const ModelRecord& a, const ModelRecord& b) {
  const auto sizes = [](const ModelRecord& r) {
    return std::tuple(r.probe.hidden, r.probe.double_blocks, r.probe.single_blocks, r.probe.context_dim);
  };
  return a.type == b.type && a.family == b.family && sizes(a) == sizes(b) &&
         (a.type != ModelType::Lora || a.variant == b.variant);
}

std::string kind_text(const ModelRecord& r, const std::string& type) {
  const std::string variant = r.variant.empty() ? r.family : r.variant;
  return variant.empty() ? type : fmt::format("{} ({})", type, variant);
}

// The recorded file of the same name and size. A file alone in its record may have another name now.
const RecordedFile* same_file(const RecordedFile& file, const ModelRecord& before) {
  const auto found = std::find_if(before.files.begin(), before.files.end(), [&](const RecordedFile& one) {
    return one.bytes == file.bytes && (before.files.size() == 1 || one.path.filename() == file.path.filename());
  });
  return found == before.files.end() ? nullptr : &*found;
}

bool is_in(const fs::path& path, const fs::path& folder) {
  std::error_code failure;
  const fs::path real = fs::weakly_canonical(path, failure), top = fs::weakly_canonical(folder, failure);
  return !failure && std::mismatch(top.begin(), top.end(), real.begin(), real.end()).first == top.end();
}

}  // namespace

ModelRecord relocated(const ModelRecord& record, const fs::path& path, const fs::path& data_folder, const Log& log) {
  const std::vector<Described> parts = identify(path, log);
  const auto found = std::find_if(parts.begin(), parts.end(),
                                  [&](const Described& part) { return part.usable() && is_same_kind(part.record, record); });
  if (found == parts.end()) {
    require_usable({parts.front()}, path);
    throw Error(
        ErrorCode::Incompatible,
        fmt::format("{} is of another kind than {}: it is {}, and {} is {}", path.string(), record.name,
                    kind_text(parts.front().record, parts.front().type), record.name, kind_text(record, name_of(record.type))),
        "register it as a model of its own");
  }
  const ModelRecord& now = found->record;
  ModelRecord moved = record;
  moved.path = now.path;
  moved.format = now.format, moved.quant = now.quant;
  moved.bytes = now.bytes;
  moved.probe.tensors = now.probe.tensors;
  moved.files = now.files;
  moved.state = now.state, moved.note = now.note;
  bool same = moved.files.size() == record.files.size();
  for (RecordedFile& file : moved.files) {
    const RecordedFile* before = same_file(file, record);
    same = same && before;
    if (before && file.sha256.empty()) file.sha256 = before->sha256;
  }
  if (!same) moved.sha256 = now.sha256;
  moved.in_place = record.in_place || !is_in(moved.path, data_folder / "models");
  if (moved.source.kind == "path" && moved.source.ref == record.path.string()) moved.source.ref = moved.path.string();
  return moved;
}

}  // namespace flux2
