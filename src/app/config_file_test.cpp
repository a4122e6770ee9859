#include "app/config_file.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

TEST(EditToml, ChangesOneValueAndNothingElse) {
  const std::string text = "# mine\n[generate]\nwidth = 512  # small\nsteps = 4\n\n[ui]\ncolor = \"never\"\n";
  EXPECT_EQ(edit_toml(text, "generate", "steps", "8"),
            "# mine\n[generate]\nwidth = 512  # small\nsteps = 8\n\n[ui]\ncolor = \"never\"\n");
  EXPECT_EQ(edit_toml(text, "generate", "seed", "1"),
            "# mine\n[generate]\nwidth = 512  # small\nsteps = 4\nseed = 1\n\n[ui]\ncolor = \"never\"\n");
  EXPECT_EQ(edit_toml(text, "generate", "width", ""), "# mine\n[generate]\nsteps = 4\n\n[ui]\ncolor = \"never\"\n");
  EXPECT_EQ(edit_toml("", "styles", "noir", "\"x\""), "[styles]\nnoir = \"x\"\n");
  EXPECT_EQ(edit_toml("[ui]\na = 1", "generate", "steps", "2"), "[ui]\na = 1\n\n[generate]\nsteps = 2\n");
}

TEST(EditToml, DistinguishesSections) {
  EXPECT_EQ(edit_toml("[ui]\nsteps = 1\n[generate]\nsteps = 2\n", "generate", "steps", "3"),
            "[ui]\nsteps = 1\n[generate]\nsteps = 3\n");
}

TEST(TomlLiteral, QuotesEverythingButNumbers) {
  EXPECT_EQ(toml_literal("768"), "768");
  EXPECT_EQ(toml_literal("007"), "\"007\"");
  EXPECT_EQ(toml_literal("true"), "true");
  EXPECT_EQ(toml_literal("a \"b\""), "\"a \\\"b\\\"\"");
  EXPECT_EQ(toml_literal("[\"a\"]"), "[\"a\"]");
  EXPECT_EQ(toml_literal(""), "\"\"");
}

TEST(ParseToml, FlattensSections) {
  if (!toml_available()) GTEST_SKIP() << "built without toml++";
  const auto values =
      parse_toml("[generate]\nsteps = 4\nguidance = 3.5\nstrict = true\nprompt = \"x\"\n[models]\npaths = [\"a\", \"b\"]\n");
  EXPECT_EQ(values.at("generate.steps"), std::vector<std::string>{"4"});
  EXPECT_EQ(values.at("generate.guidance"), std::vector<std::string>{"3.5"});
  EXPECT_EQ(values.at("generate.strict"), std::vector<std::string>{"true"});
  EXPECT_EQ(values.at("models.paths"), (std::vector<std::string>{"a", "b"}));
  EXPECT_THROW(parse_toml("[generate\n"), Error);
  EXPECT_THROW(parse_toml("a = 1979-05-27\n"), Error);
}

}  // namespace
}  // namespace flux2
