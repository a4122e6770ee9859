#include "hub/registry/glance.h"

#include <fmt/format.h>

namespace flux2 {

namespace fs = std::filesystem;

Glance glance_at_sizes(const ModelRecord& record) {
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

Glance glance_at(const ModelRecord& record) {
  const Glance sizes = glance_at_sizes(record);
  if (sizes.state != ModelState::Ready) return sizes;
  const bool was_gone = record.state == ModelState::Missing || record.state == ModelState::Incomplete;
  return was_gone ? Glance{} : Glance{record.state, record.note};
}

}  // namespace flux2
