// The bundled models follow their prompts. The critic asks questions and looks at the images that the model generates
// (support/scene_critic.h). pico_score asks more questions and prints a table.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/paths.h"
#include "tests/support/scene_model.h"

namespace flux2::test {
namespace {

std::filesystem::path sibling_folder() { return pico_folder().parent_path() / "pico-4-steps"; }

TEST(Pico, HasTheDefaultsOfItsTraining) {
  const SceneModel model(pico_folder());
  EXPECT_TRUE(model.files().bundled);
  EXPECT_EQ(model.files().defaults.steps, 20);
  EXPECT_EQ(model.files().defaults.text_length, 64);
}

TEST(PicoInFourSteps, HasTheDefaultsOfItsTraining) {
  const SceneModel model(sibling_folder());
  EXPECT_TRUE(model.files().distilled);
  EXPECT_EQ(model.files().defaults.steps, 4);
  EXPECT_EQ(model.files().defaults.text_length, 64);
}

// How many questions a category has, and how many the model may get wrong.
struct Expected {
  int questions, wrong;
};

// Asks the first questions of each category about images of the size in `settings`.
void ask(const std::filesystem::path& folder, const std::map<std::string, Expected>& expected,
         const AnswerSettings& settings = {}) {
  const SpriteSheet sheet(source_folder() / "examples/pico/things.png");
  const double aspect = settings.width > 0 ? static_cast<double>(settings.width) / settings.height : 1;
  SceneModel model(folder);
  std::map<std::string, Expected> seen;
  for (const ScoreCase& question : score_cases(12, 1, sheet, aspect)) {
    const auto limit = expected.find(question.category);
    if (limit == expected.end()) continue;
    auto& [asked, wrong] = seen[question.category];
    if (asked == limit->second.questions) continue;
    ++asked;
    if (is_right(question, model.answer(question, sheet, settings), sheet)) continue;
    ++wrong;
    fmt::print("{}: wrong answer to \"{}\"\n", question.category, question.prompt);
  }
  ASSERT_EQ(seen.size(), expected.size());
  for (const auto& [category, tally] : seen) {
    EXPECT_EQ(tally.questions, expected.at(category).questions) << category;
    EXPECT_LE(tally.wrong, expected.at(category).wrong) << category;
  }
}

// Fewer than of its sibling, because an image takes ten times as long.
TEST(Pico, AnswersTheCritic) {
  ask(pico_folder(), {{"background", {3, 0}},
                      {"colour", {3, 0}},
                      {"shape", {3, 1}},
                      {"place", {3, 0}},
                      {"size", {3, 1}},
                      {"pattern", {2, 1}},
                      {"count", {4, 1}},
                      {"relation", {2, 0}},
                      {"pair", {2, 0}},
                      {"thing", {3, 1}},
                      {"edit", {3, 1}},
                      {"kept", {2, 0}},
                      {"inpaint", {2, 1}},
                      {"reference", {4, 2}}});
}

TEST(PicoInFourSteps, AnswersTheCritic) {
  ask(sibling_folder(), {{"background", {12, 0}},
                         {"colour", {12, 0}},
                         {"shape", {12, 1}},
                         {"place", {12, 1}},
                         {"size", {12, 2}},
                         {"pattern", {12, 1}},
                         {"count", {12, 3}},
                         {"relation", {12, 1}},
                         {"pair", {12, 1}},
                         {"thing", {12, 1}},
                         {"edit", {12, 2}},
                         {"kept", {12, 0}},
                         {"inpaint", {12, 3}},
                         {"reference", {12, 5}}});
}

TEST(PicoInFourSteps, AnswersTheCriticAtLargerSizes) {
  const std::map<std::string, Expected> expected = {
      {"colour", {4, 0}}, {"shape", {4, 1}}, {"relation", {2, 0}}, {"thing", {4, 1}}};
  ask(sibling_folder(), expected, {.width = 256, .height = 256});
  ask(sibling_folder(), expected, {.width = 128, .height = 192});
}

TEST(Pico, AnswersTheCriticAtLargerSizes) {
  const std::map<std::string, Expected> expected = {{"colour", {2, 0}}, {"shape", {2, 1}}, {"relation", {1, 0}}};
  ask(pico_folder(), expected, {.width = 256, .height = 256});
  ask(pico_folder(), expected, {.width = 128, .height = 192});
}

}  // namespace
}  // namespace flux2::test
