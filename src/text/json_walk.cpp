#include "text/json_walk.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"

namespace flux2 {

namespace {

constexpr size_t kMaxDepth = 64;

// nlohmann's SAX interface; its parser keeps its own state on the heap, so deep nesting cannot overflow the stack.
class Walker {
 public:
  explicit Walker(const JsonVisitor& visit) : visit_(visit), steps_(kMaxDepth) {}

  bool null() { return value({}); }
  bool boolean(bool v) { return value({.kind = JsonScalar::Kind::Bool, .boolean = v}); }
  bool number_integer(int64_t v) { return value({.kind = JsonScalar::Kind::Integer, .integer = v}); }
  bool number_unsigned(uint64_t v) {
    if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return value({.kind = JsonScalar::Kind::Other});
    return number_integer(static_cast<int64_t>(v));
  }
  bool number_float(double, const std::string&) { return value({.kind = JsonScalar::Kind::Other}); }
  bool string(std::string& v) { return value({.kind = JsonScalar::Kind::String, .string = v}); }
  bool binary(nlohmann::json::binary_t&) { return false; }  // JSON text has none

  bool start_object(size_t) { return enter(-1); }
  bool start_array(size_t) { return enter(0); }
  bool key(std::string& k) {
    steps_[depth_ - 1].key.swap(k);
    return true;
  }
  bool end_object() { return leave(); }
  bool end_array() { return leave(); }

  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) {
    fail(ErrorCode::BadFile, "not valid JSON at byte {}", position);
  }

 private:
  bool enter(int64_t index) {
    if (depth_ == kMaxDepth) fail(ErrorCode::BadFile, "JSON is nested deeper than {}", kMaxDepth);
    steps_[depth_].key.clear();
    steps_[depth_++].index = index;
    return true;
  }

  bool leave() {
    --depth_;
    return done();
  }

  bool value(const JsonScalar& scalar) {
    visit_({steps_.data(), depth_}, scalar);
    return done();
  }

  bool done() {
    if (depth_ > 0 && steps_[depth_ - 1].index >= 0) ++steps_[depth_ - 1].index;
    return true;
  }

  const JsonVisitor& visit_;
  std::vector<JsonStep> steps_;  // the first depth_ are in use; the others keep their strings' memory
  size_t depth_ = 0;
};

}  // namespace

void walk_json(std::string_view text, const JsonVisitor& visit) {
  Walker walker(visit);
  nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &walker);
}

}  // namespace flux2
