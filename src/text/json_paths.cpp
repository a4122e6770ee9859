#include "text/json_paths.h"

#include <limits>
#include <vector>

#include "base/json_walk.h"

namespace flux2 {

namespace {

constexpr int kMaxDepth = 64;

// Keeps the path from the root to the current element.
class PathKeeper : public JsonHandler {
 public:
  explicit PathKeeper(const JsonVisitor& visit) : visit_(visit), steps_(kMaxDepth) {}

  void open(bool is_object, int depth) override {
    step(depth).key.clear();
    step(depth).index = is_object ? -1 : 0;
  }
  void close(int depth) override { advance(depth); }
  void key(std::string& name, int depth) override { step(depth - 1).key.swap(name); }
  void scalar(const Scalar& value, int depth) override {
    visit_({steps_.data(), static_cast<size_t>(depth)}, converted(value));
    advance(depth);
  }

 private:
  static JsonScalar converted(const Scalar& v) {
    switch (v.kind) {
      case Kind::Null: return {};
      case Kind::Bool: return {.kind = JsonScalar::Kind::Bool, .boolean = v.number != 0};
      case Kind::Unsigned:
        if (v.number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) break;
        return {.kind = JsonScalar::Kind::Integer, .integer = static_cast<int64_t>(v.number)};
      case Kind::Negative: return {.kind = JsonScalar::Kind::Integer, .integer = v.negative};
      case Kind::OtherNumber: break;
      case Kind::String: return {.kind = JsonScalar::Kind::String, .string = *v.text};
    }
    return {.kind = JsonScalar::Kind::Other};
  }

  JsonStep& step(int depth) { return steps_[static_cast<size_t>(depth)]; }
  void advance(int depth) {
    if (depth > 0 && step(depth - 1).index >= 0) ++step(depth - 1).index;
  }

  const JsonVisitor& visit_;
  std::vector<JsonStep> steps_;  // those beyond the depth at hand keep their strings' memory
};

}  // namespace

void walk_json_paths(std::string_view text, const JsonVisitor& visit) {
  PathKeeper keeper(visit);
  walk_json(text, keeper, kMaxDepth);
}

}  // namespace flux2
