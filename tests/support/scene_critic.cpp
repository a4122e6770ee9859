#include "tests/support/scene_critic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "scenes/draw.h"
#include "scenes/words.h"
#include "tests/support/scene_sight.h"

namespace flux2::test {

namespace {

const std::string& first_word(int colour) { return scene_colours()[static_cast<size_t>(colour)].words.front(); }

std::string noun(const SceneObject& object, const SpriteSheet& sheet) {
  return object.is_thing() ? sheet.words(object.thing).front()
                           : first_word(object.fill.colour) + " " + words_of(object.figure).front();
}

std::string on_background(const Fill& fill) {
  std::string start = fmt::format(" on {} background", with_article(first_word(fill.colour)));
  switch (fill.pattern) {
    case ScenePattern::Plain: return start;
    case ScenePattern::Stripes: return fmt::format("{} with {} stripes", start, first_word(fill.second));
    case ScenePattern::Dots: return fmt::format("{} with {} dots", start, first_word(fill.second));
    case ScenePattern::Gradient: break;
  }
  return fmt::format(" on a gradient background from {} {} {}", first_word(fill.colour), fill.direction == 0 ? "to" : "down to",
                     first_word(fill.second));
}

SceneOptions plain_options(const SpriteSheet& sheet, double aspect) {
  return {.things = sheet.count(), .aspect = aspect, .thing_share = 0, .pattern_share = 0, .some_share = 0, .couple_share = 0};
}

// A background from which a thing differs nearly everywhere.
int background_for(int thing, const SpriteSheet& sheet, SceneRandom& random) {
  const Image& sprite = sheet.sprite(thing, 1000);
  std::vector<int> good;
  std::pair<double, int> best = {-1, 0};
  for (int colour = 0; colour < static_cast<int>(scene_colours().size()); ++colour) {
    const Rgb8& c = scene_colours()[static_cast<size_t>(colour)].rgb;
    double seen = 0, all = 0;
    for (size_t i = 0; i < sprite.pixels.size(); i += 4) {
      if (sprite.pixels[i + 3] < 200) continue;
      double square = 0;
      for (size_t k = 0; k < 3; ++k) square += std::pow(double(sprite.pixels[i + k]) - c[k], 2);
      seen += square > 75 * 75;
      ++all;
    }
    best = std::max(best, {seen / all, colour});
    if (seen > 0.96 * all) good.push_back(colour);
  }
  return good.empty() ? best.second : random.one_of(good);
}

ScoreCase plain_case(const std::string& category, int number, SceneRandom& random, const SpriteSheet& sheet, double aspect) {
  SceneOptions options = plain_options(sheet, aspect);
  if (category == "pattern") options.pattern_share = 1;
  if (category == "count") options.some_share = 1;
  if (category == "relation" || category == "pair") options.couple_share = 1;
  if (category == "thing") options.thing_share = 1;
  ScoreCase question;
  question.category = category;
  Scene& scene = question.scene = random_scene(random, options);
  for (SceneObject& object : scene.objects)
    if (!object.is_thing()) {
      const int colour = object.fill.colour;
      object.fill = plain_fill(colour);
    }
  SceneObject& object = scene.objects.front();
  if (category == "size") object.size = number % 2 == 0 ? SizeWord::Small : SizeWord::Large;
  if (category == "thing") {
    object.thing = number % sheet.count();
    object.size = SizeWord::Large;
    scene.background = plain_fill(background_for(object.thing, sheet, random));
  }
  if (category == "place") object.place = {number % 9 % 3, number % 9 / 3};
  if (category == "shape") object.figure = static_cast<Figure>(number % kFigures);
  if (category == "size" || category == "thing" || category == "place" || category == "shape") {
    if (category == "size" || category == "thing") object.place = {};
    set_radius(object, random);
    set_centre(object, random, aspect);
  }
  const std::string background = on_background(scene.background);
  if (category == "count") {
    question.prompt = fmt::format("{} {}{}", number_word(scene.objects.size()), plural(noun(object, sheet)), background);
  } else if (category == "relation") {
    question.prompt = fmt::format("{} {} {}{}", with_article(noun(object, sheet)), words_of(scene.relation).front(),
                                  with_article(noun(scene.objects[1], sheet)), background);
  } else if (category == "pair") {
    question.prompt =
        fmt::format("{} and {}{}", with_article(noun(object, sheet)), with_article(noun(scene.objects[1], sheet)), background);
  } else if (category == "place") {
    question.prompt = fmt::format("{} {}{}", with_article(noun(object, sheet)), words_of(object.place).front(), background);
  } else if (category == "size") {
    question.prompt = fmt::format("a {} {}{}", words_of(object.size).front(), noun(object, sheet), background);
  } else {
    question.prompt = with_article(noun(object, sheet)) + background;
  }
  return question;
}

ScoreCase edit_case(const std::string& category, int number, SceneRandom& random, const SpriteSheet& sheet, double aspect) {
  SceneOptions options = plain_options(sheet, aspect);
  options.thing_share = sheet.count() > 0 ? 0.4 : 0;
  ScoreCase question;
  question.category = category;
  if (category == "reference") {
    SceneBlend blend = random_blend(random, options, sheet, 1);
    question.scene = blend.target;
    question.references = {blend.first, blend.second};
    question.prompt = blend.instructions.front();
    question.object = blend.target.objects.size() - 1;
    return question;
  }
  question.inpaint = category == "inpaint";
  EditKind kind = question.inpaint ? EditKind::Add : static_cast<EditKind>(number % kEditKinds);
  if (category == "kept" && kind == EditKind::Background) kind = EditKind::Recolour;  // of which little is kept
  SceneEdit edit = random_edit(kind, random, options, sheet, 1);
  question.scene = edit.target;
  question.references = {edit.source};
  question.object = edit.object;
  question.prompt = edit.instructions.front();
  return question;
}

double difference(const uint8_t* a, const uint8_t* b) {
  return (std::abs(a[0] - b[0]) + std::abs(a[1] - b[1]) + std::abs(a[2] - b[2])) / 3.0;
}

// What differs between the scene before and after looks like the one after.
bool changed_rightly(const ScoreCase& q, const Image& picture, const SpriteSheet& sheet) {
  const Image before = draw_scene(q.references[0], picture.width, picture.height, sheet);
  const Image after = draw_scene(q.scene, picture.width, picture.height, sheet);
  double to_before = 0, to_after = 0;
  for (int y = 0; y < picture.height; ++y)
    for (int x = 0; x < picture.width; ++x) {
      if (difference(before.at(x, y), after.at(x, y)) < 12) continue;
      to_before += difference(picture.at(x, y), before.at(x, y));
      to_after += difference(picture.at(x, y), after.at(x, y));
    }
  return to_after < 0.6 * to_before;
}

// What is equal before and after is still there. A margin for objects that are a little larger or elsewhere than drawn.
bool kept_the_rest(const ScoreCase& q, const Image& picture, const SpriteSheet& sheet) {
  const Image before = draw_scene(q.references[0], picture.width, picture.height, sheet);
  const Image after = draw_scene(q.scene, picture.width, picture.height, sheet);
  const int margin = std::min(picture.width, picture.height) / 12;
  const int w = picture.width, h = picture.height;
  std::vector<uint8_t> near(static_cast<size_t>(w) * static_cast<size_t>(h));
  std::vector<uint8_t> changed(near.size());
  for (int y = 0; y < h; ++y)
    for (int x = 0; x < w; ++x) changed[static_cast<size_t>(y * w + x)] = difference(before.at(x, y), after.at(x, y)) >= 3;
  // Dilated by rows, then by columns.
  std::vector<uint8_t> wide(near.size());
  for (int y = 0; y < h; ++y)
    for (int x = 0; x < w; ++x)
      for (int u = std::max(0, x - margin); u <= std::min(w - 1, x + margin); ++u)
        wide[static_cast<size_t>(y * w + x)] |= changed[static_cast<size_t>(y * w + u)];
  for (int y = 0; y < h; ++y)
    for (int x = 0; x < w; ++x)
      for (int v = std::max(0, y - margin); v <= std::min(h - 1, y + margin); ++v)
        near[static_cast<size_t>(y * w + x)] |= wide[static_cast<size_t>(v * w + x)];
  double sum = 0, count = 0;
  for (int y = 0; y < h; ++y)
    for (int x = 0; x < w; ++x) {
      if (near[static_cast<size_t>(y * w + x)]) continue;
      sum += difference(picture.at(x, y), before.at(x, y));
      ++count;
    }
  return count == 0 || sum / count < 10;
}

bool in_place(const Blob& blob, Place place) {
  const double x = (blob.left + blob.right) / 2 / blob.width, y = (blob.top + blob.bottom) / 2 / blob.height;
  const auto third = [](double at) { return at < 0.4 ? 0 : at > 0.6 ? 2 : 1; };
  return third(x) == place.column && third(y) == place.row;
}

bool has_relation(const Blob& a, const Blob& b, Relation relation) {
  const double dx = (a.x - b.x) / a.width, dy = (a.y - b.y) / a.height;
  switch (relation) {
    case Relation::LeftOf: return -dx > std::abs(dy) && -dx > 0.1;
    case Relation::RightOf: return dx > std::abs(dy) && dx > 0.1;
    case Relation::Above: return -dy > std::abs(dx) && -dy > 0.1;
    case Relation::Below: break;
  }
  return dy > std::abs(dx) && dy > 0.1;
}

bool sees_size(const Blob& blob, const SceneObject& object) {
  const double radius = radius_of(blob, object.figure) / std::min(blob.width, blob.height);
  const SizeWord seen = radius < 0.146 ? SizeWord::Small : radius > 0.228 ? SizeWord::Large : SizeWord::Medium;
  return seen == object.size;
}

bool sees_pattern(const SeenBackground& seen, const Fill& fill) {
  if (seen.pattern != fill.pattern) return false;
  if (fill.pattern == ScenePattern::Gradient)
    return seen.colour == fill.colour && seen.second == fill.second && seen.downwards == (fill.direction == 1);
  return (seen.colour == fill.colour && seen.second == fill.second) || (seen.colour == fill.second && seen.second == fill.colour);
}

bool sees_count(const Blob& foreground, size_t wanted) {
  const std::vector<Blob> parts = parts_of(foreground);
  size_t count = 0;
  for (const Blob& part : parts) count += part.area > 0.35 * parts.front().area;
  return count == wanted;
}

}  // namespace

const std::vector<std::string>& score_categories() {
  static const std::vector<std::string> names = {"background", "colour", "shape", "place", "size", "pattern", "count",
                                                 "relation",   "pair",   "thing", "edit",  "kept", "inpaint", "reference"};
  return names;
}

std::vector<ScoreCase> score_cases(int per_category, uint64_t seed, const SpriteSheet& sheet, double aspect) {
  std::vector<ScoreCase> cases;
  for (size_t k = 0; k < score_categories().size(); ++k) {
    const std::string& category = score_categories()[k];
    if (category == "thing" && sheet.count() == 0) continue;
    const int count = category == "thing" ? std::max(per_category, sheet.count()) : per_category;
    for (int i = 0; i < count; ++i) {
      SceneRandom random(seed, k * 1'000'000 + static_cast<uint64_t>(i));
      const bool edits = category == "edit" || category == "kept" || category == "inpaint" || category == "reference";
      cases.push_back((edits ? edit_case : plain_case)(category, i, random, sheet, aspect));
    }
  }
  return cases;
}

bool is_right(const ScoreCase& q, const Image& picture, const SpriteSheet& sheet) {
  if (q.category == "edit" || q.category == "reference") return changed_rightly(q, picture, sheet);
  if (q.category == "kept") return kept_the_rest(q, picture, sheet);
  if (q.category == "inpaint") return changed_rightly(q, picture, sheet) && kept_the_rest(q, picture, sheet);
  const SceneObject& object = q.scene.objects.front();
  if (q.category == "relation" || q.category == "pair") {
    const SceneObject& other = q.scene.objects[1];
    const Blob first = see_colour(picture, object.fill.colour), second = see_colour(picture, other.fill.colour);
    if (first.area == 0 || second.area == 0) return false;
    if (q.category == "relation") return has_relation(first, second, q.scene.relation);
    return figure_of(first) == object.figure && figure_of(second) == other.figure;
  }
  const SeenBackground background = see_background(picture);
  if (q.category == "pattern") return sees_pattern(background, q.scene.background);
  if (q.category == "background")
    return background.pattern == ScenePattern::Plain && background.colour == q.scene.background.colour;
  const Blob foreground = see_foreground(picture, background);
  if (foreground.area == 0) return false;
  if (q.category == "colour") return colour_of(picture, foreground) == object.fill.colour;
  if (q.category == "shape") return figure_of(foreground) == object.figure;
  if (q.category == "place") return in_place(foreground, object.place);
  if (q.category == "size") return sees_size(foreground, object);
  if (q.category == "count") return sees_count(foreground, q.scene.objects.size());
  return thing_of(picture, foreground, sheet) == object.thing;
}

Image mask_of(const ScoreCase& q, int width, int height) {
  const SceneObject& object = q.scene.objects.at(q.object);
  Image mask(width, height, 1);
  const double radius = 1.2 * object.radius * std::min(width, height);
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      if (std::abs(x + 0.5 - object.x * width) < radius && std::abs(y + 0.5 - object.y * height) < radius) *mask.at(x, y) = 255;
  return mask;
}

Image drawn_answer(const ScoreCase& q, int width, int height, const SpriteSheet& sheet, uint64_t seed) {
  Scene scene = q.scene;
  SceneRandom random(seed, 0);
  const double aspect = static_cast<double>(width) / height;
  if (q.references.empty() && scene.kind == Scene::One) {
    set_radius(scene.objects[0], random);
    set_centre(scene.objects[0], random, aspect);
  }
  scene.background.shift_x = random.between(0, 1);
  return draw_scene(scene, width, height, sheet);
}

}  // namespace flux2::test
