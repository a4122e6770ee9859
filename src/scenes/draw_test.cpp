#include "scenes/draw.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ctime>
#include <fstream>

#include "base/error.h"
#include "scenes/samples.h"
#include "scenes/words.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

SpriteSheet things() { return SpriteSheet(test::source_folder() / "examples/pico/things.png"); }

Scene one(Figure figure, float radius) {
  Scene scene;
  scene.background = plain_fill(11);
  SceneObject object;
  object.figure = figure;
  object.fill = plain_fill(9);
  object.radius = radius;
  scene.objects = {object};
  return scene;
}

// How much of the picture is covered, from the brightness of black on white.
double area_of(const Image& image) {
  double sum = 0;
  for (const uint8_t value : image.pixels) sum += (255.0 - value) / (255.0 - 16.0) / 3;
  return sum;
}

TEST(DrawScene, FiguresHaveTheirAreas) {
  const double r = 0.3 * 128;
  const std::pair<Figure, double> areas[] = {{Figure::Circle, M_PI * 0.95 * 0.95},
                                             {Figure::Square, 4 * 0.82 * 0.82},
                                             {Figure::Triangle, 3 * std::sqrt(3.0) * 0.54 * 0.54},
                                             {Figure::Diamond, 2 * 0.72},
                                             {Figure::Ring, M_PI * (0.96 * 0.96 - 0.52 * 0.52)},
                                             {Figure::Cross, 2 * 1.9 * 0.6 - 0.36},
                                             {Figure::Heart, 1.02 * 1.02 + M_PI * 0.51 * 0.51}};
  for (const auto& [figure, area] : areas)
    EXPECT_NEAR(area_of(draw_scene(one(figure, 0.3f), 128, 128, {})), area * r * r, 0.01 * area * r * r)
        << words_of(figure).front();
}

TEST(DrawScene, FiguresAreSymmetricAndDistancesNeverTooLong) {
  for (int f = 0; f < kFigures; ++f) {
    const auto figure = static_cast<Figure>(f);
    for (float y = -1.3f; y < 1.3f; y += 0.093f)
      for (float x = 0.01f; x < 1.3f; x += 0.087f) {
        const float here = distance_to(figure, x, y);
        EXPECT_NEAR(here, distance_to(figure, -x, y), 1e-5f) << f;
        EXPECT_LE(std::abs(distance_to(figure, x + 0.01f, y) - here), 0.0101f) << f;
        EXPECT_LE(std::abs(distance_to(figure, x, y + 0.01f) - here), 0.0101f) << f;
      }
    EXPECT_LT(figure == Figure::Ring ? distance_to(figure, 0.74f, 0) : distance_to(figure, 0, 0), 0) << f;
    for (const float angle : {0.0f, 0.8f, 1.6f, 2.4f, 3.1f})  // drawn inside the frame that draw.cpp allows
      EXPECT_GT(distance_to(figure, 1.2f * std::cos(angle), 1.2f * std::sin(angle)), 0) << f;
  }
}

TEST(DrawScene, EdgesAreSmooth) {
  const Image image = draw_scene(one(Figure::Circle, 0.3f), 64, 64, {});
  int between = 0;
  for (int x = 0; x < 64; ++x)
    for (int y = 0; y < 64; ++y) between += image.at(x, y)[0] > 40 && image.at(x, y)[0] < 230;
  EXPECT_GT(between, 40);
  EXPECT_LT(between, 300);
}

TEST(DrawScene, PatternsHaveBothColours) {
  for (const ScenePattern pattern : {ScenePattern::Stripes, ScenePattern::Dots, ScenePattern::Gradient})
    for (int direction = 0; direction < (pattern == ScenePattern::Gradient ? 2 : 4); ++direction) {
      Scene scene;
      scene.background = plain_fill(0);
      scene.background.pattern = pattern;
      scene.background.second = 5;
      scene.background.second_rgb = scene_colours()[5].rgb;
      scene.background.direction = direction;
      const Image image = draw_scene(scene, 96, 64, {});
      int first = 0, second = 0;
      for (int y = 0; y < 64; ++y)
        for (int x = 0; x < 96; ++x) {
          const Rgb8 here = {image.at(x, y)[0], image.at(x, y)[1], image.at(x, y)[2]};
          first += here == scene_colours()[0].rgb;
          second += here == scene_colours()[5].rgb;
        }
      EXPECT_GT(first, 60) << static_cast<int>(pattern) << " " << direction;
      EXPECT_GT(second, 60) << static_cast<int>(pattern) << " " << direction;
    }
}

TEST(DrawScene, ThingsCoverTheirSquare) {
  const SpriteSheet sheet = things();
  EXPECT_EQ(sheet.count(), 40);
  EXPECT_EQ(sheet.words(0).front(), "cat");
  for (int thing = 0; thing < sheet.count(); ++thing)
    for (const int side : {64, 256}) {
      Scene scene;
      scene.background = plain_fill(3);
      scene.objects.emplace_back();
      scene.objects[0].thing = thing;
      scene.objects[0].radius = 0.3f;
      const Image image = draw_scene(scene, side, side, sheet);
      const Image empty = draw_scene({.background = scene.background}, side, side, sheet);
      double inside = 0;
      for (int y = 0; y < side; ++y)
        for (int x = 0; x < side; ++x) {
          const bool differs = !std::equal(image.at(x, y), image.at(x, y) + 3, empty.at(x, y));
          const float reach = 0.31f * static_cast<float>(side) + 1;
          const float far = std::max(std::abs(static_cast<float>(x) + 0.5f - 0.5f * static_cast<float>(side)),
                                     std::abs(static_cast<float>(y) + 0.5f - 0.5f * static_cast<float>(side)));
          EXPECT_FALSE(differs && far > reach);
          inside += differs;
        }
      EXPECT_GT(inside / (0.36 * side * side), 0.2) << sheet.words(thing).front();
    }
}

TEST(SpriteSheet, NamesMustFitTheSheet) {
  const auto folder = std::filesystem::temp_directory_path() / "flux2_sprite_test";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(test::source_folder() / "examples/pico/things.png", folder / "things.png",
                             std::filesystem::copy_options::overwrite_existing);
  const auto error = [&](const std::string& names) -> std::string {
    std::ofstream(folder / "things.txt") << names;
    try {
      SpriteSheet sheet(folder / "things.png");
    } catch (const Error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(error("cat\ndog\n"), testing::HasSubstr("cannot be divided into the 2 squares"));
  EXPECT_THAT(error("# nothing\n"), testing::HasSubstr("names no things"));
  EXPECT_THAT(error("cat | \n"), testing::HasSubstr("empty word"));
  std::filesystem::remove_all(folder);
  EXPECT_THAT(error("cat"), testing::HasSubstr("does not exist"));
}

// Fast enough to feed a GPU. The limit is far below what was measured, because tests share their machine.
TEST(DrawScene, DrawsThousandsOfPicturesASecond) {
  const SpriteSheet sheet = things();
  const SceneOptions options{.things = sheet.count()};
  std::vector<Scene> scenes;
  for (uint64_t i = 0; i < 500; ++i) scenes.push_back(scene_sample(SceneSampleKind::Plain, 1, i, options, sheet, 0).target);
  const std::clock_t start = std::clock();  // of the processor, which tests share
  size_t bytes = 0;
  for (const Scene& scene : scenes) bytes += draw_scene(scene, 128, 128, sheet).pixels.size();
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  EXPECT_EQ(bytes, scenes.size() * 128 * 128 * 3);
  RecordProperty("pictures_per_second", static_cast<int>(static_cast<double>(scenes.size()) / seconds));
  fmt::print("{:.0f} pictures of 128×128 a second\n", static_cast<double>(scenes.size()) / seconds);
#ifdef NDEBUG
  EXPECT_GT(static_cast<double>(scenes.size()) / seconds, 300);
#endif
}

}  // namespace
}  // namespace flux2
