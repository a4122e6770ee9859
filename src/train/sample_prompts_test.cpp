#include "train/sample_prompts.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

TEST(SamplePrompts, ReadsLinesWithOptions) {
  const auto prompts = sample_prompts_from_text(
      "# a comment\n"
      "a red fox, I stand in the snow --w 512 --h 768 --s 4 --d 42 --g 3.5 --n blurry, dark --ci a.png --ci b c.png\r\n"
      "\n"
      "a plain prompt\n");
  ASSERT_EQ(prompts.size(), 2u);
  EXPECT_EQ(prompts[0].prompt, "a red fox, I stand in the snow");
  EXPECT_EQ(prompts[0].width, 512);
  EXPECT_EQ(prompts[0].height, 768);
  EXPECT_EQ(prompts[0].steps, 4);
  EXPECT_EQ(prompts[0].seed, 42u);
  EXPECT_EQ(prompts[0].guidance, 3.5);
  EXPECT_EQ(prompts[0].negative, "blurry, dark");
  EXPECT_EQ(prompts[0].references, (std::vector<std::string>{"a.png", "b c.png"}));
  EXPECT_EQ(prompts[1].prompt, "a plain prompt");
  EXPECT_EQ(prompts[1].negative, " ");
  EXPECT_FALSE(prompts[1].seed);
}

TEST(SamplePrompts, ReadsImagePrompts) {
  const auto lines = sample_prompts_from_text("a fox --ip a.png --d 1\n--ip b c.png\n");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].prompt, "a fox");
  EXPECT_EQ(lines[0].image_prompts, (std::vector<std::string>{"a.png"}));
  EXPECT_EQ(lines[1].prompt, "");
  EXPECT_EQ(lines[1].image_prompts, (std::vector<std::string>{"b c.png"}));
  const auto list = sample_prompts_from_json(Json::parse(R"([{"prompt": "a", "image_prompt": ["x.png", "y.png"]}])"));
  EXPECT_EQ(list[0].image_prompts, (std::vector<std::string>{"x.png", "y.png"}));
}

TEST(SamplePrompts, ReadsJsonAndTomlForms) {
  const auto list = sample_prompts_from_json(
      Json::parse(R"([{"prompt": "a", "width": 256, "seed": 7, "control_image_path": ["x.png"]}, "b --s 3"])"));
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].seed, 7u);
  EXPECT_EQ(list[0].references.size(), 1u);
  EXPECT_EQ(list[1].steps, 3);
  const auto table = sample_prompts_from_json(
      Json::parse(R"({"prompt": {"width": 512, "seed": 1, "subset": [{"prompt": "a"}, {"prompt": "b", "seed": 2}]}})"));
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table[0].width, 512);
  EXPECT_EQ(table[0].seed, 1u);
  EXPECT_EQ(table[1].seed, 2u);
}

TEST(SamplePrompts, RefusesWhatItDoesNotKnow) {
  EXPECT_THROW(sample_prompts_from_text("a --zz 4"), Error);
  EXPECT_THROW(sample_prompts_from_text("a --w wide"), Error);
  EXPECT_THROW(sample_prompts_from_text("# nothing\n"), Error);
  EXPECT_THROW(sample_prompts_from_json(Json::parse(R"([{"prompt": "a", "colour": 1}])")), Error);
  EXPECT_THROW(sample_prompts_from_json(Json::parse("3")), Error);
}

}  // namespace
}  // namespace flux2
