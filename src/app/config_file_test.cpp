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
  EXPECT_THROW(toml_literal("\xff"), Error);
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

std::string toml_refusal(const std::string& text) {
  try {
    parse_toml(text);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(ParseToml, RefusesWhatWouldExhaustTheStack) {
  if (!toml_available()) GTEST_SKIP() << "built without toml++";
  std::string key = "a";
  for (int i = 0; i < 500'000; ++i) key += ".a";
  EXPECT_NE(toml_refusal("x = 1\n" + key + " = 1\n").find("line 2: a key has more than 200 parts"), std::string::npos);
  EXPECT_NE(toml_refusal("[" + key + "]\n").find("line 1"), std::string::npos);
  EXPECT_NE(toml_refusal("x = {" + key + " = 1}\n").find("line 1"), std::string::npos);
  EXPECT_NE(toml_refusal("x = " + std::string(100'000, '[')).find("not valid TOML"), std::string::npos);
  EXPECT_EQ(toml_refusal("x = \"" + std::string(1000, '.') + ", a.b.c., " + std::string(300, 'a') + "\"\n"), "");
}

TEST(ParseToml, NamesTheLineAndTheFault) {
  if (!toml_available()) GTEST_SKIP() << "built without toml++";
  const std::string message = toml_refusal("[generate]\nsteps 4\n");
  EXPECT_NE(message.find("line 2, column 7: not valid TOML: expected '=', saw '4'"), std::string::npos) << message;
}

}  // namespace
}  // namespace flux2
