#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/config_keys.h"
#include "cli/help_text.h"
#include "cli/options.h"
#include "cli/topics.h"

namespace flux2 {
namespace {

using testing::HasSubstr;
using testing::Not;

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
    expect_narrow(help_for(command, nullptr, HelpDetail::All), command.name);
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

// What is copied from a terminal must run.
TEST(Help, BrokenExamplesEndInABackslash) {
  EXPECT_EQ(wrapped_command("flux2 a 'b c'", 2, 0), "flux2 a 'b c'");
  const std::string quoted = "'" + std::string(60, 'x') + " y'";
  EXPECT_EQ(wrapped_command("flux2 " + std::string(40, 'a') + " " + quoted + " -o z", 2, 0),
            "flux2 " + std::string(40, 'a') + " \\\n  " + quoted + " -o z");
}

// A first word as wide as the indent used to swallow the space behind it.
TEST(Help, ExamplesKeepTheirSpaces) {
  EXPECT_NE(help_for(*find_command("generate")).find("  echo \"a castle"), std::string::npos);
}

size_t listed_options(const Command& command, bool common_only) {
  size_t n = 0;
  for (const OptionGroup& group : command.options())
    for (const OptionSpec& option : group.options) n += option.is_listed() && (option.common || !common_only);
  return n;
}

TEST(Help, IsShortUnlessAllIsAskedFor) {
  for (const Command& command : commands()) {
    EXPECT_LE(listed_options(command, true), 20u) << command.name;
    EXPECT_GE(listed_options(command, true), 4u) << command.name;
  }
  EXPECT_THAT(help_for(*find_command("mask")), HasSubstr("--mask-box X,Y,W,H"));
  const Command& generate = *find_command("generate");
  EXPECT_GE(listed_options(generate, true), 10u);
  const std::string brief = help_for(generate), all = help_for(generate, nullptr, HelpDetail::All);
  EXPECT_THAT(brief, HasSubstr("--seed N"));
  EXPECT_THAT(brief, Not(HasSubstr("--time-rounding")));
  EXPECT_THAT(brief, HasSubstr("`flux2 generate --help-all` shows all"));
  EXPECT_THAT(all, HasSubstr("--time-rounding"));
  EXPECT_THAT(all, Not(HasSubstr("--help-all` shows all")));
  for (const OptionGroup& group : generate.options())
    for (const OptionSpec& option : group.options) EXPECT_TRUE(!option.is_listed() || all.find("--" + option.name) != all.npos);
  EXPECT_LT(overview().size(), overview(HelpDetail::All).size());
  for (const Command& command : commands()) EXPECT_THAT(overview(), HasSubstr(command.name));
}

TEST(Help, PlanListsWhatAForecastUses) {
  const auto found = std::find_if(commands().begin(), commands().end(), [](const Command& c) { return c.name == "plan"; });
  ASSERT_NE(found, commands().end());
  const std::string all = help_for(*found, nullptr, HelpDetail::All);
  for (const char* used : {"--size", "--quant", "--batch", "--hires"}) EXPECT_THAT(all, HasSubstr(used));
  for (const char* unused : {"--output ", "--show", "--format", "--dry-run", "--metadata"})
    EXPECT_THAT(all, Not(HasSubstr(unused)));
  // They are taken all the same, so that the command of an image becomes that of its forecast.
  EXPECT_NO_THROW(parse_arguments(plan_options(), {}, {"a fox", "-o", "x.png", "--show", "auto"}));
}

TEST(Help, TheMaskServiceHasOneName) {
  for (const Command& command : commands()) EXPECT_THAT(help_for(command, nullptr, HelpDetail::All), Not(HasSubstr("sam-url")));
  EXPECT_NO_THROW(parse_arguments(serve_options(), {}, {"--sam-url", "off"}));
  EXPECT_TRUE(is_config_key("serve.sam-url"));
  EXPECT_TRUE(is_config_key("masks.mask-service"));
}

TEST(Help, TopicsAreMadeFromTheTables) {
  for (const Topic& topic : topics()) expect_narrow(topic.text(), topic.name);
  const std::string environment = find_topic("environment")->text(), config = find_topic("config")->text();
  for (const Field& f : request_fields())
    if (!f.later && !f.help.empty() && !f.section.empty()) {
      EXPECT_THAT(environment, HasSubstr(environment_name(f)));
      EXPECT_THAT(config, HasSubstr(config_key(f)));
    }
  EXPECT_THAT(environment, HasSubstr("FLUX2_HOME"));
  EXPECT_THAT(environment, HasSubstr("HF_TOKEN"));
  for (const std::string& key : config_keys()) EXPECT_THAT(config, HasSubstr(key));
  const std::string codes = find_topic("exit-codes")->text();
  for (const ExitStatus& s : exit_statuses()) EXPECT_THAT(codes, HasSubstr(s.meaning.substr(0, 20)));
}

TEST(ExitStatuses, CoverEveryErrorOnce) {
  std::set<ErrorCode> seen;
  for (const ExitStatus& s : exit_statuses())
    for (const ErrorCode code : s.errors) {
      EXPECT_TRUE(seen.insert(code).second) << name_of(code);
      EXPECT_EQ(exit_code(code), s.status);
    }
  for (int code = 0; code <= static_cast<int>(ErrorCode::Cancelled); ++code)
    EXPECT_TRUE(seen.contains(static_cast<ErrorCode>(code))) << name_of(static_cast<ErrorCode>(code));
  EXPECT_EQ(exit_code(ErrorCode::NotFound), 3);
}

TEST(Commands, OfOtherProgramsNameOurs) {
  EXPECT_EQ(equivalent_command({"pull", "flux.2-klein-4b"}), "models install flux.2-klein-4b");
  EXPECT_EQ(equivalent_command({"run", "klein", "a red fox"}), "generate -m klein \"a red fox\"");
  EXPECT_EQ(equivalent_command({"run", "a red fox"}), "generate \"a red fox\"");
  EXPECT_EQ(equivalent_command({"list"}), "models list");
  EXPECT_EQ(equivalent_command({"frobnicate"}), "");
}

TEST(Help, DoesNotListUnavailableOptions) {
  const std::string text = help_for(*find_command("generate"), nullptr, HelpDetail::All);
  EXPECT_EQ(text.find("--element"), std::string::npos);
  EXPECT_NE(text.find("--steps"), std::string::npos);
  EXPECT_NE(text.find("Sampling:"), std::string::npos);
}

TEST(Commands, AreFoundByAnyName) {
  EXPECT_EQ(find_command("txt2img"), find_command("generate"));
  EXPECT_EQ(find_command("paint"), nullptr);
}

}  // namespace
}  // namespace flux2
