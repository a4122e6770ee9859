#include "server/jobs/shots.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

Element thing(const std::string& name, const std::string& type, const std::string& description = "") {
  Element element;
  element.id = name;
  element.name = name;
  element.type = type;
  element.description = description;
  element.trigger = "@";
  for (const char c : name)
    if (c != ' ') element.trigger += c;
  return element;
}

struct Found {
  double score = 0;
  std::string source;
};
Found found(const Element& element, const Json& fields, const std::string& heading = "") {
  Shot shot;
  shot.fields = fields;
  const std::vector<Element> all = {element};
  const auto matches = match_elements(shot, heading, all);
  return matches.empty() ? Found{} : Found{matches[0].score, matches[0].source};
}

TEST(Shots, ElementsAreFoundInTheirFields) {
  const Element hero = thing("Old Hero", "character");
  EXPECT_EQ(found(hero, {{"character", "OLD HERO"}}).score, 1.0);
  EXPECT_EQ(found(hero, {{"action", "then oldhero jumps"}}).score, 0.95);
  EXPECT_EQ(found(hero, {{"action", "then @OldHero jumps"}}).source, "trigger");
  EXPECT_EQ(found(hero, {{"character", "hero, who is old"}}).score, 0.8);
  EXPECT_EQ(found(hero, {{"action", "the old hero jumps"}}).score, 0.75);
  EXPECT_EQ(found(hero, {{"dialogue", "look, the old hero!"}}).score, 0.7);
  EXPECT_EQ(found(hero, {{"action", "the old heroine jumps"}}).score, 0);
  EXPECT_EQ(found(hero, Json::object(), "OLD HERO").score, 0) << "only places are in headings";
  EXPECT_EQ(found(thing("Forest", "location"), Json::object(), "EXT. FOREST - DAY").score, 0.85);
  EXPECT_EQ(found(thing("Лес", "location"), Json::object(), "НАТ. ЛЕС").score, 0.85);
}

TEST(Shots, DescriptionsNeedMostOfTheirWords) {
  const Element coat = thing("Coat", "object", "a long red woollen garment");
  EXPECT_EQ(found(coat, {{"action", "she wears something long, red and woollen, a garment"}}).score, 0.5);
  EXPECT_EQ(found(coat, {{"action", "long and red"}}).score, 0) << "three words are needed";
  EXPECT_EQ(found(coat, {{"action", "long red woollen"}}).score, 0) << "three of four are 0.38";
  const Element bag = thing("Bag", "object", "old brown leather bag strap");
  EXPECT_EQ(found(bag, {{"action", "the old brown leather"}, {"dialogue", "my strap"}}).score, 0.4);
}

TEST(Shots, TheBestMatchComesFirst) {
  Shot shot;
  shot.fields = {{"character", "Ann"}, {"action", "Ann meets Bob"}};
  const std::vector<Element> all = {thing("Bob", "character"), thing("Ann", "character"), thing("Cat", "character")};
  const auto matches = match_elements(shot, "", all);
  ASSERT_EQ(matches.size(), 2u);
  EXPECT_EQ(matches[0].element->name, "Ann");
  EXPECT_EQ(matches[1].element->name, "Bob");
}

TEST(Shots, APromptHasItsPartsInOrder) {
  Shot shot;
  shot.fields = {{"shot_type", "close-up"}, {"character", "Ann"}, {"dialogue", "Run!"}, {"action", "Ann runs"}};
  EXPECT_EQ(shot_prompt(shot, "Forest, day", {thing("Hut", "location"), thing("Forest", "location")}, "Ann wakes", {}),
            "Forest, day. Shot type: close-up. Character: Ann. Dialogue: Run!. Ann runs. Setting: @Hut. Before this: Ann wakes");
  const ShotParts none{
      .scene = false, .shot_type = false, .character = false, .dialogue = false, .setting = false, .context = false};
  EXPECT_EQ(shot_prompt(shot, "Forest, day", {thing("Hut", "location")}, "Ann wakes", none), "Ann runs");
  shot.fields["prompt"] = "a woman runs";
  EXPECT_EQ(shot_prompt(shot, "", {}, "", none), "a woman runs");
  EXPECT_EQ(thumbnail_prompt(shot), "Storyboard drawing, rough pencil, clear shapes. Ann: Ann runs");
}

}  // namespace
}  // namespace flux2
