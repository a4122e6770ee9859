#include "app/prompts.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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

TEST(PromptFile, LinesMayHaveImagePrompts) {
  const auto lines = parse_prompt_file(
      "a house --image-prompt red.png:0.8 --image_prompt my blue.png:0.5:0-0.5 --image-prompt-adapter a --image-prompt-adapter "
      "b\n"
      "a tree --image-prompt-encoder clip --ip red.png\n");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].prompt, "a house");
  EXPECT_EQ(lines[0].settings.at("image-prompt").values, (std::vector<std::string>{"red.png:0.8", "my blue.png:0.5:0-0.5"}));
  EXPECT_EQ(lines[0].settings.at("image-prompt-adapter").values, std::vector<std::string>{"b"});
  EXPECT_EQ(lines[1].settings.at("image-prompt-encoder").values, std::vector<std::string>{"clip"});
  EXPECT_EQ(lines[1].settings.at("image-prompt").values, std::vector<std::string>{"red.png"});
  EXPECT_EQ(lines[1].settings.at("image-prompt-encoder").origin, "--image-prompt-encoder in line 2");
}

TEST(PromptFile, UnknownOptionsAreListed) {
  try {
    parse_prompt_file("a fox\na fox --q 3\n");
    FAIL() << "an unknown option was accepted";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(),
                 "--q in line 2: unknown option; a line may have --w, --h, --s, --d, --g, --l, --n, --o, --ci, --lora, --ip, "
                 "--image-prompt, --image-prompt-adapter, --image-prompt-encoder");
  }
}

TEST(PromptFile, LoraTagsBecomeAdaptersOfTheirLine) {
  std::vector<PromptLine> lines = {{"a fox <lora:ink:0.5>", {}}, {"a cat", {}}};
  const std::filesystem::path home = std::filesystem::path(::testing::TempDir()) / "flux2_prompt_tags";
  std::filesystem::create_directories(home / "models/loras");
  std::ofstream(home / "models/loras/ink.safetensors") << "x";
  AppContext context;
  const std::string name = home.string();
  context.environment = [&](const char* variable) { return std::string_view(variable) == "FLUX2_HOME" ? name.c_str() : nullptr; };
  take_lora_tags(lines, context);
  EXPECT_EQ(lines[0].prompt, "a fox");
  EXPECT_EQ(lines[0].settings.at("lora").values, std::vector{(home / "models/loras/ink.safetensors").string() + ":0.5"});
  EXPECT_TRUE(lines[1].settings.empty());
  std::vector<PromptLine> path = {{"a fox <lora:/etc/passwd:1>", {}}};
  EXPECT_THROW(take_lora_tags(path, context), Error);
}

}  // namespace
}  // namespace flux2
