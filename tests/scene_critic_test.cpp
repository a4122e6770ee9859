// The critic of the bundled model must itself be right: it judges pictures whose content is known.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "base/counted_random.h"
#include "scenes/draw.h"
#include "tests/support/paths.h"
#include "tests/support/scene_critic.h"

namespace flux2::test {
namespace {

SpriteSheet things() { return SpriteSheet(source_folder() / "examples/pico/things.png"); }

// What an autoencoder and a denoiser leave: noise and soft edges.
Image roughened(Image image, uint64_t seed) {
  std::vector<float> noise(image.pixels.size());
  CountedRandom(seed, 0, 0).normals(noise);
  const Image sharp = image;
  for (int y = 1; y + 1 < image.height; ++y)
    for (int x = 1; x + 1 < image.width; ++x)
      for (int c = 0; c < 3; ++c) {
        int sum = 0;
        for (int v = -1; v <= 1; ++v)
          for (int u = -1; u <= 1; ++u) sum += sharp.at(x + u, y + v)[c];
        image.at(x, y)[c] = static_cast<uint8_t>(sum / 9);
      }
  for (size_t i = 0; i < noise.size(); ++i)
    image.pixels[i] = static_cast<uint8_t>(std::clamp(static_cast<float>(image.pixels[i]) + 8 * noise[i], 0.0f, 255.0f));
  return image;
}

struct Tally {
  int right = 0, all = 0;
};

TEST(SceneCritic, AcceptsRightPictures) {
  const SpriteSheet sheet = things();
  for (const auto& [width, height] : {std::pair(128, 128), {256, 256}, {192, 128}}) {
    std::map<std::string, Tally> tallies;
    Tally all;
    for (const ScoreCase& q : score_cases(width == 128 ? 60 : 20, 5, sheet, static_cast<double>(width) / height)) {
      const uint64_t seed = static_cast<uint64_t>(++all.all);
      const bool right = is_right(q, roughened(drawn_answer(q, width, height, sheet, seed), seed), sheet);
      tallies[q.category].right += right;
      ++tallies[q.category].all;
      all.right += right;
      if (!right) fmt::print("{}×{} {}: \"{}\" was not recognised\n", width, height, q.category, q.prompt);
    }
    for (const auto& [category, tally] : tallies)
      EXPECT_GE(tally.right, 0.96 * tally.all) << category << " at " << width << "×" << height;
    EXPECT_GE(all.right, 0.98 * all.all) << width << "×" << height;
  }
}

// The answer to another question of the same category is wrong, nearly always: two questions may share an answer.
TEST(SceneCritic, RefusesWrongPictures) {
  const SpriteSheet sheet = things();
  std::map<std::string, std::vector<ScoreCase>> by_category;
  for (ScoreCase& q : score_cases(60, 6, sheet)) by_category[q.category].push_back(std::move(q));
  const std::map<std::string, double> by_chance = {{"size", 0.55},  {"count", 0.45}, {"relation", 0.25},  {"shape", 0.25},
                                                   {"place", 0.25}, {"colour", 0.2}, {"background", 0.2}, {"kept", 0.2}};
  for (const auto& [category, cases] : by_category) {
    int accepted = 0, asked = 0;
    for (size_t i = 0; i < cases.size(); ++i) {
      const ScoreCase& other = cases[(i + 7) % cases.size()];
      // A picture that was not edited at all is the usual mistake.
      const bool edits = !cases[i].references.empty();
      if (category == "kept") {  // nothing of another picture is kept
        accepted += is_right(cases[i], drawn_answer(other, 128, 128, sheet, i), sheet);
      } else {
        const Image wrong = edits ? draw_scene(cases[i].references[0], 128, 128, sheet) : drawn_answer(other, 128, 128, sheet, i);
        accepted += is_right(cases[i], wrong, sheet);
      }
      ++asked;
    }
    const double limit = by_chance.contains(category) ? by_chance.at(category) : 0.06;
    EXPECT_LE(accepted, limit * asked + 1) << category;
  }
}

}  // namespace
}  // namespace flux2::test
