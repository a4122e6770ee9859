// The bundled model follows its prompts. The critic asks questions and looks at the images that the model generates
// (support/scene_critic.h). pico_score asks more questions and prints a table.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/paths.h"
#include "tests/support/scene_model.h"

namespace flux2::test {
namespace {

TEST(Pico, HasTheDefaultsOfItsTraining) {
  const SceneModel model(pico_folder());
  EXPECT_TRUE(model.files().bundled);
  EXPECT_EQ(model.files().defaults.steps, 20);
  EXPECT_EQ(model.files().defaults.text_length, 64);
}

// How many questions a category has, and how many the model may get wrong.
struct Expected {
  int questions, wrong;
};

TEST(Pico, AnswersTheCritic) {
  const std::map<std::string, Expected> expected = {
      {"background", {12, 0}}, {"colour", {12, 0}}, {"shape", {12, 1}},   {"place", {12, 0}},   {"size", {12, 1}},
      {"pattern", {6, 1}},     {"count", {12, 5}},  {"relation", {6, 1}}, {"pair", {6, 1}},     {"thing", {12, 1}},
      {"edit", {6, 2}},        {"kept", {6, 0}},    {"inpaint", {6, 1}},  {"reference", {6, 2}}};
  const SpriteSheet sheet(source_folder() / "examples/pico/things.png");
  SceneModel model(pico_folder());
  std::map<std::string, Expected> seen;
  for (const ScoreCase& question : score_cases(12, 1, sheet)) {
    const auto limit = expected.find(question.category);
    if (limit == expected.end()) continue;
    auto& [asked, wrong] = seen[question.category];
    if (asked == limit->second.questions) continue;
    ++asked;
    if (is_right(question, model.answer(question, sheet), sheet)) continue;
    ++wrong;
    fmt::print("{}: wrong answer to \"{}\"\n", question.category, question.prompt);
  }
  ASSERT_EQ(seen.size(), expected.size());
  for (const auto& [category, tally] : seen) {
    EXPECT_EQ(tally.questions, expected.at(category).questions) << category;
    EXPECT_LE(tally.wrong, expected.at(category).wrong) << category;
  }
}

}  // namespace
}  // namespace flux2::test
