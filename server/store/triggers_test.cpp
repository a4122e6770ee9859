#include "server/store/triggers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flux2 {
namespace {

using testing::ElementsAre;

std::vector<std::string> folds(std::string_view prompt) {
  std::vector<std::string> found;
  for (const TriggerWord& word : trigger_words(prompt)) found.push_back(word.fold);
  return found;
}

TEST(Triggers, HaveLettersDigitsAndTwoSigns) {
  for (const char* good : {"@Hero", "@a", "@tall-tower_2", "@Ωmega", "@主角"}) EXPECT_TRUE(is_trigger(good)) << good;
  for (const char* bad : {"", "@", "Hero", "@two words", "@Hero!", "@@", "@\xff"}) EXPECT_FALSE(is_trigger(bad)) << bad;
  EXPECT_TRUE(is_trigger("@" + std::string(40, 'a')));
  EXPECT_FALSE(is_trigger("@" + std::string(41, 'a')));
}

TEST(Triggers, ComeFromNames) {
  EXPECT_EQ(trigger_of_name("Tall Tower"), "@TallTower");
  EXPECT_EQ(trigger_of_name("  Zoë (young)"), "@Zoëyoung");
  EXPECT_EQ(trigger_of_name("!?"), "");
  EXPECT_EQ(trigger_of_name(std::string(60, 'x')).size(), 41u);
}

TEST(Triggers, AreFoundAsWholeWords) {
  EXPECT_THAT(folds("@Hero and @HEROINE."), ElementsAre("@hero", "@heroine"));
  EXPECT_THAT(folds("(@Hero), @Hero's hat"), ElementsAre("@hero", "@hero"));
  EXPECT_THAT(folds("mail me@home.org, @ alone, a@b"), ElementsAre());
  EXPECT_THAT(folds("@ГЕРОЙ 走る@主角"), ElementsAre("@герой"));
  EXPECT_THAT(folds("@Zoe\xCC\x88"), ElementsAre("@zoë")) << "an accent that follows its letter";
  EXPECT_THAT(folds("@@Hero"), ElementsAre("@hero"));
}

TEST(Triggers, HavePlacesInBytesAndCharacters) {
  const auto words = trigger_words("für @Zoë!");
  ASSERT_EQ(words.size(), 1u);
  EXPECT_EQ(words[0].begin, 5u);
  EXPECT_EQ(words[0].end, 10u);
  EXPECT_EQ(words[0].start, 4);
  EXPECT_EQ(words[0].length, 4);
}

}  // namespace
}  // namespace flux2
