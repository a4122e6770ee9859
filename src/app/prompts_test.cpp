#include "app/prompts.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

TEST(PromptFile, LinesCarryTheirOwnOptions) {
  const auto prompts = parse_prompt_file("# comment\n\na fox --w 512 --h 256 --d 7 --n dark, grey --o x.png\r\nplain\n");
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[1].prompt, "plain");
  EXPECT_EQ(prompts[1].settings.size(), 0u);
}

TEST(PromptFile, OptionsAreRead) {
  const auto prompts = parse_prompt_file("a fox-hound --w 512 --d 7 --n dark, grey\n");
  ASSERT_EQ(prompts.size(), 1u);
  EXPECT_EQ(prompts[0].prompt, "a fox-hound");
  EXPECT_EQ(prompts[0].settings.at("width").values.back(), "512");
  EXPECT_EQ(prompts[0].settings.at("negative").values.back(), "dark, grey");
  EXPECT_THROW(parse_prompt_file("a --zz 4"), Error);
  EXPECT_THROW(parse_prompt_file("a --w"), Error);
  EXPECT_EQ(parse_prompt_file("a --ci x.png --ci y.png --w 64")[0].settings.at("input").values.size(), 2u);
}

TEST(PromptFile, LoraTagsBecomeAdaptersOfTheirLine) {
  std::vector<PromptLine> lines = {{"a fox <lora:ink:0.5>", {}}, {"a cat", {}}};
  take_lora_tags(lines);
  EXPECT_EQ(lines[0].prompt, "a fox");
  EXPECT_EQ(lines[0].settings.at("lora").values, std::vector<std::string>{"ink:0.5"});
  EXPECT_TRUE(lines[1].settings.empty());
}

}  // namespace
}  // namespace flux2
