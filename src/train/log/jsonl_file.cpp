#include "train/log/jsonl_file.h"

#include "base/atomic_file.h"
#include "base/path_exists.h"
#include "train/log/text_lines.h"

namespace flux2 {

namespace {

bool is_until(const Json& event, int64_t step) {
  if (!event.is_object()) return false;
  for (const char* key : {"step", "resumed_step"})
    if (event.contains(key) && event[key].is_number() && event[key].get<double>() > static_cast<double>(step)) return false;
  return true;
}

// Returns how the file is then opened.
AppendFile::Start drop_later_lines(const std::filesystem::path& path, std::optional<int64_t> resumed_step) {
  if (!resumed_step) return AppendFile::Start::Empty;
  if (!path_exists(path)) return AppendFile::Start::Continue;
  AtomicFile kept(path);
  read_lines(path, [&](std::string_view line) {
    const auto event = try_parse_json(line);
    if (!event || !is_until(*event, *resumed_step)) return;
    kept.write(line.data(), line.size());
    kept.write("\n", 1);
  });
  kept.commit();
  return AppendFile::Start::Continue;
}

}  // namespace

JsonlFile::JsonlFile(const std::filesystem::path& path, std::optional<int64_t> resumed_step)
    : file_(path, drop_later_lines(path, resumed_step)) {}

void JsonlFile::append(const Json& event) { file_.append(event.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"); }

}  // namespace flux2
