#include "scenes/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <sstream>

#include "scenes/captions.h"
#include "scenes/draw.h"
#include "scenes/edits.h"
#include "scenes/words.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

SpriteSheet things() { return SpriteSheet(test::source_folder() / "examples/pico/things.png"); }

bool has_word(const std::string& text, const std::string& words) { return (" " + text + " ").find(words) != std::string::npos; }

bool has_one_of(const std::string& text, const Words& words) {
  return std::any_of(words.begin(), words.end(), [&](const std::string& w) { return has_word(text, w); });
}

TEST(SceneSample, DependsOnItsArgumentsOnly) {
  const SpriteSheet sheet = things();
  const SceneOptions options{.things = sheet.count()};
  for (const auto kind : {SceneSampleKind::Plain, SceneSampleKind::Edit, SceneSampleKind::TwoReferences}) {
    std::set<std::string> captions;
    for (uint64_t i = 0; i < 50; ++i) {
      const SceneSample a = scene_sample(kind, 3, i, options, sheet, 2), b = scene_sample(kind, 3, i, options, sheet, 2);
      EXPECT_EQ(a.target, b.target);
      EXPECT_EQ(a.references, b.references);
      EXPECT_EQ(a.captions, b.captions);
      EXPECT_EQ(a.references.size(), static_cast<size_t>(kind));
      EXPECT_EQ(a.captions.size(), 2u);
      captions.insert(a.captions.begin(), a.captions.end());
      EXPECT_FALSE(scene_sample(kind, 4, i, options, sheet, 2).target == a.target);
    }
    EXPECT_GT(captions.size(), 30u);
  }
}

TEST(RandomScene, ObjectsAreInsideAndCanBeToldApart) {
  const SpriteSheet sheet = things();
  for (const double aspect : {1.0, 1.5, 2.0 / 3})
    for (uint64_t i = 0; i < 400; ++i) {
      SceneRandom random(9, i);
      const Scene scene = random_scene(random, {.things = sheet.count(), .aspect = aspect});
      const size_t count = scene.objects.size();
      ASSERT_TRUE(scene.kind == Scene::One ? count == 1 : scene.kind == Scene::Couple ? count == 2 : count >= 2 && count <= 4);
      for (size_t a = 0; a < count; ++a) {
        const SceneObject& object = scene.objects[a];
        const double rx = aspect >= 1 ? object.radius / aspect : object.radius,
                     ry = aspect >= 1 ? object.radius : object.radius * aspect;
        EXPECT_GE(object.x - rx, 0.01);
        EXPECT_LE(object.x + rx, 0.99);
        EXPECT_GE(object.y - ry, 0.01);
        EXPECT_LE(object.y + ry, 0.99);
        for (const int own : object.is_thing() ? std::vector<int>{} : colours_of(object.fill))
          for (const int other : colours_of(scene.background)) EXPECT_TRUE(are_apart(own, other));
        for (size_t b = 0; b < a; ++b)
          EXPECT_GT(distance_between(object, scene.objects[b], aspect), object.radius + scene.objects[b].radius);
      }
    }
}

TEST(Captions, SayWhatIsDrawn) {
  const SpriteSheet sheet = things();
  int with_place = 0, with_background = 0, with_size = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    SceneRandom random(2, i);
    const Scene scene = random_scene(random, {.things = sheet.count()});
    std::string text = describe(scene, random, sheet);
    text[0] = static_cast<char>(std::tolower(text[0]));
    for (const SceneObject& object : scene.objects) {
      Words words = object.is_thing() ? sheet.words(object.thing) : words_of(object.figure);
      if (scene.kind == Scene::Some)
        for (std::string& word : words) word = plural(word);
      EXPECT_TRUE(has_one_of(text, words)) << text;
      EXPECT_TRUE(object.is_thing() || has_one_of(text, scene_colours()[static_cast<size_t>(object.fill.colour)].words)) << text;
    }
    EXPECT_TRUE(scene.kind != Scene::Some || has_word(text, number_word(scene.objects.size()))) << text;
    if (scene.kind == Scene::One) {
      for (int place = 0; place < 9; ++place) {
        const Place said{place % 3, place / 3};
        // "at the top" is part of "at the top left".
        const bool corner = said.column != 1 && said.row != 1;
        EXPECT_FALSE(corner && !(said == scene.objects[0].place) && has_one_of(text, words_of(said))) << text;
      }
      with_place += has_one_of(text, words_of(scene.objects[0].place));
      with_size += has_one_of(text, words_of(scene.objects[0].size));
    }
    if (has_word(text, "background")) {
      ++with_background;
      EXPECT_TRUE(has_one_of(text, scene_colours()[static_cast<size_t>(scene.background.colour)].words)) << text;
    }
  }
  EXPECT_GT(with_place, 250);
  EXPECT_LT(with_place, 480);
  EXPECT_GT(with_size, 150);
  EXPECT_GT(with_background, 750);
  EXPECT_LT(with_background, 950);
}

// "a circle and a square" has one meaning: the circle is on the left, or above.
TEST(Captions, WithoutARelationObjectsAreNamedInReadingOrder) {
  const SpriteSheet sheet = things();
  int seen = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    SceneRandom random(3, i);
    const Scene scene = random_scene(random, {.things = 0, .pattern_share = 0, .some_share = 0, .couple_share = 1});
    const std::string text = describe(scene, random, sheet);
    if (text.find(" and ") == text.npos && text.find(" next to ") == text.npos) continue;
    ++seen;
    const auto place_of = [&](const SceneObject& object) {
      size_t place = text.npos;
      for (const std::string& word : words_of(object.figure)) place = std::min(place, text.find(word));
      return place;
    };
    const SceneObject &a = scene.objects[0], &b = scene.objects[1];
    const bool a_first = scene.relation == Relation::LeftOf || scene.relation == Relation::Above;
    EXPECT_EQ(place_of(a) < place_of(b), a_first) << text;
  }
  EXPECT_GT(seen, 250);
}

TEST(Captions, UseAFewHundredWordsAndFitTheEncoder) {
  const SpriteSheet sheet = things();
  std::set<std::string> words;
  size_t longest = 0;
  for (const auto kind : {SceneSampleKind::Plain, SceneSampleKind::Edit, SceneSampleKind::TwoReferences})
    for (uint64_t i = 0; i < 1500; ++i)
      for (const std::string& caption : scene_sample(kind, 1, i, {.things = sheet.count()}, sheet, 2).captions) {
        std::istringstream stream(caption);
        size_t count = 0;
        for (std::string word; stream >> word; ++count) words.insert(word);
        longest = std::max(longest, count);
      }
  EXPECT_LT(words.size(), 800u);  // with their punctuation
  EXPECT_GT(words.size(), 150u);
  EXPECT_LE(longest, 32u);  // 64 slots hold the template and about 50 tokens
}

// Everything outside of what the instruction names has the same pixels before and after.
TEST(Edits, ChangeOnlyWhatTheySay) {
  const SpriteSheet sheet = things();
  for (int kind = 0; kind < kEditKinds; ++kind)
    for (uint64_t i = 0; i < 60; ++i) {
      SceneRandom random(7, 1000 * static_cast<uint64_t>(kind) + i);
      const SceneEdit edit = random_edit(static_cast<EditKind>(kind), random, {.things = sheet.count()}, sheet, 2);
      EXPECT_FALSE(edit.source == edit.target) << kind;
      const Image before = draw_scene(edit.source, 128, 128, sheet), after = draw_scene(edit.target, 128, 128, sheet);
      const auto near = [](const SceneObject& o, int x, int y) {
        const float reach = 1.25f * o.radius * 128 + 3;
        return std::abs(static_cast<float>(x) - 128 * o.x) < reach && std::abs(static_cast<float>(y) - 128 * o.y) < reach;
      };
      int changed = 0;
      for (int y = 0; y < 128; ++y)
        for (int x = 0; x < 128; ++x) {
          if (std::equal(before.at(x, y), before.at(x, y) + 3, after.at(x, y))) continue;
          ++changed;
          if (edit.kind == EditKind::Background) continue;
          const bool was = edit.kind != EditKind::Add && near(edit.source.objects[edit.object], x, y);
          const bool is = edit.kind != EditKind::Remove && near(edit.target.objects[edit.object], x, y);
          ASSERT_TRUE(was || is) << edit.instructions[0] << " changed (" << x << ", " << y << ")";
        }
      EXPECT_GT(changed, 100) << edit.instructions[0];
    }
}

TEST(Edits, BlendsTakeFromBothScenes) {
  const SpriteSheet sheet = things();
  int backgrounds = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    SceneRandom random(8, i);
    const SceneBlend blend = random_blend(random, {.things = sheet.count()}, sheet, 1);
    if (blend.background) {
      ++backgrounds;
      EXPECT_EQ(blend.target.background, blend.second.background);
      EXPECT_EQ(blend.target.objects, blend.first.objects);
      EXPECT_THAT(blend.instructions[0], testing::HasSubstr("background"));
      continue;
    }
    EXPECT_EQ(blend.target.background, blend.first.background);
    ASSERT_EQ(blend.target.objects.size(), 2u);
    EXPECT_EQ(blend.target.objects[0], blend.first.objects[0]);
    EXPECT_EQ(blend.target.objects[1].thing, blend.second.objects[0].thing);
    EXPECT_EQ(blend.target.objects[1].fill, blend.second.objects[0].fill);
    EXPECT_GT(distance_between(blend.target.objects[0], blend.target.objects[1], 1),
              0.95f * (blend.target.objects[0].radius + blend.target.objects[1].radius));
  }
  EXPECT_GT(backgrounds, 40);
  EXPECT_LT(backgrounds, 110);
}

TEST(Words, PluralsAndArticles) {
  EXPECT_EQ(plural("red circle"), "red circles");
  EXPECT_EQ(plural("fox"), "foxes");
  EXPECT_EQ(plural("butterfly"), "butterflies");
  EXPECT_EQ(plural("strawberry"), "strawberries");
  EXPECT_EQ(plural("slice of pizza"), "slices of pizza");
  EXPECT_EQ(plural("cross"), "crosses");
  EXPECT_EQ(with_article("orange star"), "an orange star");
  EXPECT_EQ(with_article("red star"), "a red star");
}

}  // namespace
}  // namespace flux2
