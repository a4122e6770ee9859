#include "base/json.h"

#include <set>
#include <vector>

#include "base/error.h"
#include "base/mapped_file.h"

namespace flux2 {

namespace {

// Watches a parse for nesting depth and repeated keys without keeping the document; the parser then builds it.
class Watcher {
 public:
  explicit Watcher(const JsonLimits& limits) : limits_(limits) {}

  bool operator()(int depth, Json::parse_event_t event, Json& value) {
    if (event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start) {
      if (depth + 1 > limits_.max_depth) fail(ErrorCode::BadFile, "JSON is nested deeper than {}", limits_.max_depth);
    }
    if (!limits_.refuse_duplicate_keys) return true;
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end) keys_.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = value.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) fail(ErrorCode::BadFile, "JSON key \"{}\" appears twice", key);
    }
    return true;
  }

 private:
  JsonLimits limits_;
  std::vector<std::set<std::string>> keys_;
};

}  // namespace

Json parse_json(std::string_view text, const JsonLimits& limits) {
  try {
    Watcher watcher(limits);
    return Json::parse(text.begin(), text.end(),
                       [&](int depth, Json::parse_event_t event, Json& value) { return watcher(depth, event, value); });
  } catch (const Json::parse_error& e) {
    fail(ErrorCode::BadFile, "not valid JSON at byte {}", e.byte);
  } catch (const Json::exception& e) {
    fail(ErrorCode::BadFile, "not valid JSON: {}", e.what());
  }
}

std::string read_text_file(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  auto bytes = file->bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Json read_json(const std::filesystem::path& path) {
  return in_context(path.string(), [&] { return parse_json(read_text_file(path)); });
}

}  // namespace flux2
