#include "cli/config_keys.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

std::string refusal(const std::string& key) {
  try {
    refuse_unknown_keys({"config.toml", {{key, {"4"}}}});
  } catch (const Error& e) {
    return std::string(e.what()) + " | " + e.hint().plain();
  }
  return "";
}

TEST(ConfigKeys, UnknownOnesAreRefusedWithTheNearest) {
  EXPECT_NE(refusal("generate.stesp").find("unknown key generate.stesp | did you mean generate.steps?"), std::string::npos);
  EXPECT_EQ(refusal("serve.port"), "");
  EXPECT_NE(refusal("serve.prot").find("did you mean serve.port?"), std::string::npos);
  EXPECT_NE(refusal("safety.filter").find("unknown key"), std::string::npos);
  EXPECT_EQ(refusal("generate.steps"), "");
  EXPECT_EQ(refusal("styles.mine"), "");
  EXPECT_EQ(refusal("models.paths"), "");
}

TEST(ConfigKeys, ValuesAreCheckedBeforeTheyAreWritten) {
  if (!toml_available()) GTEST_SKIP() << "built without toml++";
  EXPECT_THROW(check_config_value("generate.width", "\"abc\""), Error);
  EXPECT_THROW(check_config_value("ui.progress", "\"loud\""), Error);
  EXPECT_THROW(check_config_value("memory.blocks-resident", "\"5\""), Error) << "not available yet";
  EXPECT_THROW(check_config_value("upsample.url", "\"nowhere\""), Error);
  try {
    check_config_value("limits.steps", "0");
    FAIL() << "0 steps";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "limits.steps: \"0\" is not a whole number from 1 to 1000000000");
  }
  EXPECT_NO_THROW(check_config_value("upsample.max-tokens", "300"));
  EXPECT_NO_THROW(check_config_value("generate.width", "512"));
  EXPECT_NO_THROW(check_config_value("memory.max-ram", "3.5"));
  EXPECT_NO_THROW(check_config_value("generate.strict", "true"));
  EXPECT_NO_THROW(check_config_value("models.paths", "[\"a\"]"));
}

}  // namespace
}  // namespace flux2
