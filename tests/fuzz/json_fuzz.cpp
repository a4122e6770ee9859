#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/json.h"
#include "base/json_walk.h"
#include "tests/fuzz/target.h"

namespace {

struct Counter : flux2::JsonHandler {
  size_t events = 0;
  void key(std::string&, int) override { ++events; }
  void scalar(const Scalar&, int) override { ++events; }
  void open(bool, int) override { ++events; }
  void close(int) override { ++events; }
};

}  // namespace

// Any text is refused with an Error or is a document within the limits, which can be written and read again.
FUZZ_TARGET(json) {
  using namespace flux2;
  const std::string_view text = flux2_fuzz::text_of(data, size);
  const JsonLimits limits{.bytes = 1 << 20, .keys = 1000, .values = 10'000, .depth = 20};
  const auto parsed = try_parse_json(text, limits);
  Counter counter;
  bool walked = true;
  try {
    walk_json(text, counter, limits.depth);
  } catch (const Error&) {
    walked = false;
  }
  if (parsed && !walked) std::abort();
  if (!parsed) return;
  const std::string written = parsed->dump(-1, ' ', false, Json::error_handler_t::replace);
  if (parse_json(written) != *parsed) std::abort();
  std::string word;
  double number = 0;
  int64_t whole = 0;
  for (const char* key : {"rms_norm_eps", "rope_theta", "name"}) {
    if (!parsed->is_object()) break;
    try {
      read_member(*parsed, key, number);
    } catch (const Error&) {}
    try {
      read_member(*parsed, key, whole);
    } catch (const Error&) {}
    try {
      read_member(*parsed, key, word);
    } catch (const Error&) {}
  }
}
