#include <gtest/gtest.h>

#include <sstream>

#include "cli/command.h"

namespace flux2 {
namespace {

size_t columns(const std::string& line) {
  size_t n = 0;
  for (const char c : line) n += (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  return n;
}

void expect_narrow(const std::string& text, const std::string& what) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), 100u) << what << ": " << line;
}

TEST(Help, FitsAHundredColumnsAndEndsWithThreeExamples) {
  expect_narrow(overview(), "overview");
  expect_narrow(short_help(), "short help");
  for (const Command& command : commands()) {
    const std::string text = help_for(command);
    expect_narrow(text, command.name);
    EXPECT_EQ(command.examples.size(), 3u) << command.name;
    EXPECT_NE(text.find("Examples:\n"), std::string::npos);
    EXPECT_NE(text.find("--help"), std::string::npos);
    if (!command.actions) continue;
    for (const Command& action : command.actions()) {
      expect_narrow(help_for(action, &command), action.name);
      EXPECT_EQ(action.examples.size(), 3u) << action.name;
      EXPECT_EQ(command.find_action(action.name), &action);
    }
  }
}

// A first word as wide as the indent used to swallow the space behind it.
TEST(Help, ExamplesKeepTheirSpaces) {
  EXPECT_NE(help_for(*find_command("generate")).find("  echo \"a castle"), std::string::npos);
}

TEST(Help, DoesNotListUnavailableOptions) {
  const std::string text = help_for(*find_command("generate"));
  EXPECT_EQ(text.find("--element"), std::string::npos);
  EXPECT_NE(text.find("--steps"), std::string::npos);
  EXPECT_NE(text.find("Sampling:"), std::string::npos);
}

TEST(Commands, AreFoundByAnyName) {
  EXPECT_EQ(find_command("txt2img"), find_command("generate"));
  EXPECT_EQ(find_command("serve"), nullptr);
  EXPECT_TRUE(is_later_command("serve"));
  EXPECT_FALSE(is_later_command("generate"));
}

}  // namespace
}  // namespace flux2
