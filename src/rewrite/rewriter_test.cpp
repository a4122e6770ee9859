#include "rewrite/rewriter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

using testing::HasSubstr;
using testing::Not;

// Answers with one text after the other and remembers the questions.
class Script : public Rewriter {
 public:
  explicit Script(std::vector<RewriteAnswer> answers, bool sees = true) : answers_(std::move(answers)), sees_(sees) {}

  RewriteAnswer answer(const RewriteQuestion& question, const Cancelled&) override {
    asked.push_back(question);
    return answers_.at(asked.size() - 1);
  }
  std::string way() const override { return "script"; }
  std::string model() const override { return "m"; }
  std::string place() const override { return ""; }
  bool sees_images() const override { return sees_; }

  std::vector<RewriteQuestion> asked;

 private:
  std::vector<RewriteAnswer> answers_;
  bool sees_;
};

TEST(RewritePrompt, UsesTheFirstGoodAnswer) {
  Script script({{"\"A sign \u201cOPEN\u201d.\"", 7}});
  const RewrittenPrompt rewritten = rewrite_prompt(script, {.prompt = "sign \"OPEN\"", .seed = 5}, 1000, {}, {});
  EXPECT_EQ(rewritten.prompt, "A sign \u201cOPEN\u201d.");
  EXPECT_EQ(rewritten.tokens, 7);
  ASSERT_EQ(script.asked.size(), 1u);
  EXPECT_EQ(script.asked[0].seed, 5u);
}

TEST(RewritePrompt, AsksOnceMoreWithAnotherSeedIfQuotedTextIsLost) {
  Script script({{"A sign says Open."}, {"A sign says \"OPEN\"."}});
  EXPECT_EQ(rewrite_prompt(script, {.prompt = "sign \"OPEN\"", .seed = 5}, 1000, {}, {}).prompt, "A sign says \"OPEN\".");
  ASSERT_EQ(script.asked.size(), 2u);
  EXPECT_EQ(script.asked[1].seed, 6u);
}

TEST(RewritePrompt, GivesUpAfterTheSecondLossAndQuotesNothing) {
  Script script({{"A sign."}, {"A board."}, {"never asked"}});
  try {
    rewrite_prompt(script, {.prompt = "sign \"SECRET\""}, 1000, {}, {});
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Incompatible);
    EXPECT_THAT(e.what(), HasSubstr("in quotes"));
    EXPECT_THAT(e.what(), Not(HasSubstr("SECRET")));
  }
  EXPECT_EQ(script.asked.size(), 2u);
}

TEST(RewritePrompt, RefusesAnAnswerThatIsLongerThanAPromptMayBe) {
  Script script({{std::string(101, 'x')}});
  EXPECT_THROW(rewrite_prompt(script, {.prompt = "a"}, 100, {}, {}), Error);
}

TEST(RewritePrompt, ACutAnswerLosesItsLastSentenceAndIsReported) {
  std::vector<std::string> warnings;
  const Log log([&](LogLevel level, const std::string& text) {
    if (level == LogLevel::Warning) warnings.push_back(text);
  });
  Script script({{"A fox. It stands in", 3, true}});
  EXPECT_EQ(rewrite_prompt(script, {.prompt = "a fox"}, 1000, {}, log).prompt, "A fox.");
  EXPECT_EQ(warnings.size(), 1u);
}

TEST(DescribeImage, AsksForADescriptionWithTheImage) {
  Script script({{"\"A red fox.\nIn snow.\"", 7}, {"b"}});
  EXPECT_EQ(describe_image(script, Image(4, 4, 3), {.seed = 9, .one_line = true}, {}, {}).prompt, "A red fox. In snow.");
  ASSERT_EQ(script.asked.size(), 1u);
  EXPECT_TRUE(script.asked[0].is_caption);
  EXPECT_EQ(script.asked[0].images.size(), 1u);
  EXPECT_EQ(script.asked[0].seed, 9u);
  EXPECT_EQ(script.asked[0].text(), "Describe this image.");
  describe_image(script, Image(4, 4, 3), {.about = " our dog Rex "}, {}, {});
  EXPECT_EQ(script.asked[1].text(), "Describe this image. About it: our dog Rex");
}

TEST(DescribeImage, RefusesAModelThatCannotSeeAndAnswersThatAreTooLong) {
  Script blind({{"a"}}, false);
  try {
    describe_image(blind, Image(4, 4, 3), {}, {}, {});
    FAIL() << "accepted";
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Incompatible);
    EXPECT_THAT(e.what(), HasSubstr("cannot look at images"));
  }
  EXPECT_TRUE(blind.asked.empty());
  Script chatty({{std::string(101, 'x')}});
  EXPECT_THROW(describe_image(chatty, Image(4, 4, 3), {.max_bytes = 100}, {}, {}), Error);
}

TEST(RewritePrompt, ImagesGoOnlyToAModelThatSeesThem) {
  const Image image(4, 4, 3);
  for (const bool sees : {true, false}) {
    Script script({{"a"}}, sees);
    rewrite_prompt(script, {.prompt = "a", .is_edit = true, .images = {image}}, 100, {}, {});
    EXPECT_EQ(script.asked[0].images.size(), sees ? 1u : 0u);
    EXPECT_TRUE(script.asked[0].is_edit);
  }
}

}  // namespace
}  // namespace flux2
