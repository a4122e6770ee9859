#include "cli/completions.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flux2 {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

Completed after(const std::string& command, const std::string& name) {
  for (const OptionGroup& group : find_command(command)->options())
    for (const OptionSpec& option : group.options)
      if (option.name == name) return values_of(option);
  ADD_FAILURE() << command << " has no option " << name;
  return {};
}

TEST(Completions, ValuesComeFromTheTables) {
  EXPECT_THAT(after("generate", "sampler").words, ElementsAre("euler", "heun", "dpmpp2m"));
  EXPECT_THAT(after("generate", "quant").words, Contains("int8"));
  EXPECT_THAT(after("convert", "quant").words, Contains("q4_k"));
  EXPECT_THAT(after("generate", "device").words, Contains("cuda"));
  EXPECT_EQ(after("generate", "model").models, "main");
  EXPECT_TRUE(after("generate", "model").files);
  EXPECT_EQ(after("generate", "lora").models, "lora");
  EXPECT_TRUE(after("generate", "dir").folders);
  EXPECT_TRUE(after("generate", "steps").empty());
  EXPECT_TRUE(after("generate", "strict").empty());
}

TEST(Completions, ArgumentsComeFromTheUsageLine) {
  EXPECT_THAT(arguments_of(*find_command("vae")).first.words, ElementsAre("encode", "decode"));
  EXPECT_TRUE(arguments_of(*find_command("vae")).others.files);
  EXPECT_THAT(arguments_of(*find_command("models")).first.words, Contains("install"));
  EXPECT_THAT(arguments_of(*find_command("help")).first.words, Contains("environment"));
  EXPECT_THAT(arguments_of(*find_command("config")).others.words, Contains("generate.steps"));
  EXPECT_FALSE(arguments_of(*find_command("generate")).first.files);
}

TEST(Completions, NameEveryCommandAndEveryListedOption) {
  for (const std::string& script : {bash_completion(), zsh_completion(), fish_completion()})
    for (const Command& command : commands()) {
      EXPECT_THAT(script, HasSubstr(command.name));
      for (const OptionGroup& group : command.options())
        for (const OptionSpec& option : group.options)
          EXPECT_TRUE(!option.is_listed() || script.find(option.name) != script.npos) << command.name << " " << option.name;
    }
  EXPECT_THAT(bash_completion(), testing::Not(HasSubstr("--element")));  // not available yet
}

}  // namespace
}  // namespace flux2
