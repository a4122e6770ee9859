#include "base/json.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

TEST(Json, KeepsTheOrderOfKeys) { EXPECT_EQ(parse_json(R"({"b":1,"a":[2]})").dump(), R"({"b":1,"a":[2]})"); }

TEST(Json, NamesThePositionOfAFault) {
  try {
    parse_json(R"({"a":)");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::BadFile);
    EXPECT_NE(std::string(e.what()).find("byte"), std::string::npos);
  }
}

TEST(Json, EnforcesItsLimits) {
  EXPECT_THROW(parse_json("[[[1]]]", {.max_depth = 2}), Error);
  EXPECT_NO_THROW(parse_json("[[1]]", {.max_depth = 2}));
  EXPECT_THROW(parse_json(R"({"a":1,"a":2})", {.refuse_duplicate_keys = true}), Error);
  EXPECT_NO_THROW(parse_json(R"({"a":{"a":1},"b":{"a":1}})", {.refuse_duplicate_keys = true}));
  EXPECT_THROW(parse_json("\"\xff\""), Error);
}

}  // namespace
}  // namespace flux2
