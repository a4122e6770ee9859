#include "text/json_paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// One line per scalar: its path, then what it is.
std::vector<std::string> walked(std::string_view json) {
  std::vector<std::string> lines;
  walk_json_paths(json, [&](std::span<const JsonStep> path, const JsonScalar& value) {
    std::string line;
    for (const JsonStep& step : path) line.append("/").append(step.index < 0 ? step.key : std::to_string(step.index));
    switch (value.kind) {
      case JsonScalar::Kind::Null: line += " null"; break;
      case JsonScalar::Kind::Bool: line += value.boolean ? " true" : " false"; break;
      case JsonScalar::Kind::Integer: line.append(" ").append(std::to_string(value.integer)); break;
      case JsonScalar::Kind::Other: line += " number"; break;
      case JsonScalar::Kind::String: line.append(" '").append(value.string).append("'"); break;
    }
    lines.push_back(line);
  });
  return lines;
}

std::string error_of(std::string_view json) {
  try {
    walked(json);
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::BadFile);
    return e.what();
  }
  return "";
}

TEST(JsonPaths, GivesEveryScalarWithItsPath) {
  constexpr const char* kText =
      R"({"a":1,"b":[true,null,["x",{"c":-2}],[],"y"],"d":{"e":0.5},"f":18446744073709551615,"g":"\u0120"})";
  EXPECT_THAT(walked(kText), ElementsAre("/a 1", "/b/0 true", "/b/1 null", "/b/2/0 'x'", "/b/2/1/c -2", "/b/4 'y'", "/d/e number",
                                         "/f number", "/g 'Ġ'"));
  EXPECT_THAT(walked("7"), ElementsAre(" 7"));
}

TEST(JsonPaths, RejectsInvalidText) {
  EXPECT_THAT(error_of(R"({"a":)"), HasSubstr("not valid JSON at byte"));
  EXPECT_THAT(error_of(""), HasSubstr("not valid JSON"));
  EXPECT_THAT(error_of("\"\xff\""), HasSubstr("not valid UTF-8"));
  EXPECT_THAT(error_of("{} {}"), HasSubstr("not valid JSON"));
}

TEST(JsonPaths, RefusesDeepNesting) {
  EXPECT_EQ(error_of(std::string(64, '[') + std::string(64, ']')), "");
  EXPECT_THAT(error_of(std::string(1000000, '[')), HasSubstr("nested deeper"));
}

}  // namespace
}  // namespace flux2
