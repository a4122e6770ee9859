#include "rewrite/answer_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "rewrite/instructions.h"

namespace flux2 {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(AnswerText, KeepsAPlainAnswer) {
  EXPECT_EQ(prompt_in_answer("  A red fox in snow.\n"), "A red fox in snow.");
  EXPECT_EQ(prompt_in_answer("A fox.\n\nSoft light."), "A fox.\n\nSoft light.");
}

TEST(AnswerText, RemovesWhatSurroundsThePrompt) {
  EXPECT_EQ(prompt_in_answer("<think>\nhm\n</think>\n\na fox"), "a fox");
  EXPECT_EQ(prompt_in_answer("\"a fox\""), "a fox");
  EXPECT_EQ(prompt_in_answer("\u201ca fox\u201d"), "a fox");
  EXPECT_EQ(prompt_in_answer("```\na fox\n```"), "a fox");
  EXPECT_EQ(prompt_in_answer("```text\na fox\n```"), "a fox");
  EXPECT_EQ(prompt_in_answer("```json\n{\"enhanced_prompt\": \"a fox\"}\n```"), "a fox");
  EXPECT_EQ(prompt_in_answer("Sure! {\"enhanced_prompt\": \" a fox \", \"x\": 1} Enjoy."), "a fox");
}

TEST(AnswerText, KeepsQuotesThatBelongToThePrompt) {
  EXPECT_EQ(prompt_in_answer("\"OPEN\" above a door, \"24/7\" below, signed \"B\""),
            "\"OPEN\" above a door, \"24/7\" below, signed \"B\"");
  EXPECT_EQ(prompt_in_answer("a sign that says \"OPEN\""), "a sign that says \"OPEN\"");
  EXPECT_EQ(prompt_in_answer("{\"subject\": \"a fox\"}"), "{\"subject\": \"a fox\"}") << "a structured prompt";
}

TEST(AnswerText, RefusesAnAnswerWithoutAPrompt) {
  for (const char* nothing : {"", " \n", "<think>never ends", "<think></think>", "\"\"", "```\n```"})
    EXPECT_THROW(prompt_in_answer(nothing), Error) << nothing;
  EXPECT_THROW(prompt_in_answer("a \x01 fox"), Error);
  EXPECT_THROW(prompt_in_answer("a \xff fox"), Error);
}

TEST(AnswerText, FindsQuotedTexts) {
  EXPECT_THAT(quoted_texts("a sign \"OPEN 24/7\" and \u201cé\u201d"), ElementsAre("OPEN 24/7", "é"));
  EXPECT_THAT(quoted_texts("a 5\" screen"), IsEmpty()) << "inches";
  EXPECT_THAT(quoted_texts("\"\" \"a"), IsEmpty());
  EXPECT_THAT(quoted_texts("it's 'single'"), IsEmpty());
}

TEST(AnswerText, NamesQuotedTextsThatWereLost) {
  EXPECT_THAT(lost_quotes("says \"OPEN\"", "a glowing \u201cOPEN\u201d sign"), IsEmpty()) << "any quotes will do";
  EXPECT_THAT(lost_quotes("says \"OPEN\" and \"SHUT\"", "a sign says \"Open\" and \"SHUT\""), ElementsAre("OPEN"));
}

TEST(AnswerText, ACaptionIsOneLine) {
  EXPECT_EQ(in_one_line(" a fox \r\n\n  in snow\n"), "a fox in snow");
  EXPECT_EQ(in_one_line("a fox"), "a fox");
  EXPECT_EQ(in_one_line(""), "");
}

TEST(AnswerText, AnUnfinishedSentenceIsDropped) {
  EXPECT_EQ(without_unfinished_sentence("A fox. It stands in the"), "A fox.");
  EXPECT_EQ(without_unfinished_sentence("A fox stands in the"), "A fox stands in the");
  EXPECT_EQ(without_unfinished_sentence("A fox. " + std::string(250, 'x')), "A fox. " + std::string(250, 'x'));
}

TEST(Instructions, AreShort) {
  for (const std::string_view text : {prompt_instructions(), edit_instructions(), caption_instructions()}) {
    EXPECT_GT(text.size(), 200u);
    EXPECT_LT(text.size(), 900u);
    EXPECT_THAT(std::string(text), testing::HasSubstr("double quotes"));
  }
}

}  // namespace
}  // namespace flux2
