#include "record/image_prompt_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "record/a1111_text.h"
#include "record/generation_record.h"

namespace flux2 {
namespace {

using testing::HasSubstr;

void expect(const char* text, const std::string& file, double strength, double from, double to) {
  const ImagePromptText prompt = parse_image_prompt(text);
  EXPECT_EQ(prompt.file, file) << text;
  EXPECT_EQ(prompt.strength, strength) << text;
  EXPECT_EQ(prompt.from, from) << text;
  EXPECT_EQ(prompt.to, to) << text;
  const ImagePromptText again = parse_image_prompt(prompt.text());
  EXPECT_EQ(again.file, file) << prompt.text();
  EXPECT_EQ(again.strength, strength) << prompt.text();
  EXPECT_EQ(again.from, from) << prompt.text();
  EXPECT_EQ(again.to, to) << prompt.text();
}

TEST(ImagePromptText, ReadsFileStrengthAndRange) {
  expect("a.png", "a.png", 1, 0, 1);
  expect("a.png:0.5", "a.png", 0.5, 0, 1);
  expect("a.png:0", "a.png", 0, 0, 1);
  expect("a.png:2:0-0.5", "a.png", 2, 0, 0.5);
  expect("a.png:0.25-1", "a.png", 1, 0.25, 1);
  expect("-:0.7", "-", 0.7, 0, 1);
  expect("a.png:1e-1:1e-2-5e-1", "a.png", 0.1, 0.01, 0.5);
}

TEST(ImagePromptText, ColonsMayBelongToTheFile) {
  expect("a:b.png", "a:b.png", 1, 0, 1);
  expect("a: b.png:0.5", "a: b.png", 0.5, 0, 1);
  expect("12:30.png:0.5:0-0.5", "12:30.png", 0.5, 0, 0.5);
  expect("shot:1:1", "shot:1", 1, 0, 1);
  expect("a.png:", "a.png:", 1, 0, 1);
}

TEST(ImagePromptText, RefusesNumbersOutOfRange) {
  const auto problem = [](const char* text) {
    try {
      parse_image_prompt(text);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(problem("a.png:2.5"), HasSubstr("a number from 0 to 2, not 2.5"));
  EXPECT_THAT(problem("a.png:-1"), HasSubstr("a number from 0 to 2"));
  EXPECT_THAT(problem("a.png:nan"), HasSubstr("a number from 0 to 2"));
  EXPECT_THAT(problem("a.png:1:0.5-0.5"), HasSubstr("not from 0.5 to 0.5"));
  EXPECT_THAT(problem("a.png:1:0-1.5"), HasSubstr("not from 0 to 1.5"));
  EXPECT_THAT(problem(""), HasSubstr("names no image"));
  EXPECT_THAT(problem(":0.5"), HasSubstr("names no image"));
}

TEST(ImagePromptText, RecordsKeepImagesAndFiles) {
  GenerationRecord record;
  record.image_prompts = {{{"a.png", "12ab", 30, 40}, 0.5, 0, 0.75}, {{"b.png", "34cd", 5, 6}, 1, 0, 1}};
  record.image_prompt_adapter = {"colours", "56ef"};
  record.image_prompt_encoder = {"clip-tiny", "78ab"};
  const GenerationRecord back = record_from_json(to_json(record));
  EXPECT_EQ(back.image_prompts, record.image_prompts);
  EXPECT_EQ(back.image_prompt_adapter, record.image_prompt_adapter);
  EXPECT_EQ(back.image_prompt_encoder, record.image_prompt_encoder);
  EXPECT_THAT(to_a1111(record),
              HasSubstr("Image prompts: \"a.png:0.5:0-0.75, b.png:1\", Image prompt adapter: \"colours: 56ef\""));

  const std::string hidden = to_json(record, true).dump() + to_a1111(record, true);
  for (const char* name : {"a.png", "colours", "clip-tiny"}) EXPECT_EQ(hidden.find(name), std::string::npos) << name;
  EXPECT_EQ(record_from_json(to_json(record, true)).image_prompts[0].picture.sha256, "12ab");
}

}  // namespace
}  // namespace flux2
