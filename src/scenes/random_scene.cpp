#include "scenes/random_scene.h"

#include <algorithm>
#include <cmath>

#include "scenes/words.h"

namespace flux2 {

namespace {

constexpr double kMargin = 0.02;  // between an object and the edge of the picture

// How much of the width and of the height the shorter side is.
struct Sides {
  double x, y;
};
Sides shorter_side(double aspect) { return aspect >= 1 ? Sides{1 / aspect, 1} : Sides{1, aspect}; }

Rgb8 any_colour(SceneRandom& random) {
  Rgb8 rgb;
  for (uint8_t& value : rgb) value = static_cast<uint8_t>(random.below(256));
  return rgb;
}

void free_colours(Fill& fill, SceneRandom& random, const SceneOptions& options) {
  if (options.free_colours <= 0 || !random.chance(options.free_colours)) return;
  fill.rgb = any_colour(random);
  fill.second_rgb = any_colour(random);
}

void add_pattern(Fill& fill, ScenePattern pattern, int second, SceneRandom& random) {
  fill.pattern = pattern;
  fill.second = second;
  fill.second_rgb = scene_colours()[static_cast<size_t>(second)].rgb;
  fill.shift_x = random.between(0, 1);
  fill.shift_y = random.between(0, 1);
  fill.direction = random.below(pattern == ScenePattern::Gradient ? 2 : 4);
}

// Moves the centre until the whole object is visible.
void keep_inside(SceneObject& object, double aspect) {
  const Sides side = shorter_side(aspect);
  const auto inside = [&](float& at, double share) {
    const double room = std::min(0.5, (object.radius + kMargin) * share);
    at = static_cast<float>(std::clamp<double>(at, room, 1 - room));
  };
  inside(object.x, side.x);
  inside(object.y, side.y);
}

struct Spot {
  double x, y;  // shares of width and height
};

// How two, three or four equal objects lie: in a row, as a triangle, in a square. Objects at places without any order would be
// harder to learn: nothing in the caption says where they are, so the network would have to agree on places of its own for all of
// them.
const std::vector<Spot>& arrangement(int count, SceneRandom& random) {
  static const std::vector<std::vector<std::vector<Spot>>> kinds = {
      {{{0.3, 0.5}, {0.7, 0.5}}, {{0.5, 0.3}, {0.5, 0.7}}},
      {{{0.5, 0.3}, {0.28, 0.7}, {0.72, 0.7}}, {{0.28, 0.3}, {0.72, 0.3}, {0.5, 0.7}}},
      {{{0.3, 0.3}, {0.7, 0.3}, {0.3, 0.7}, {0.7, 0.7}}, {{0.5, 0.22}, {0.22, 0.5}, {0.78, 0.5}, {0.5, 0.78}}}};
  const auto& of_count = kinds[static_cast<size_t>(count - 2)];
  return of_count[random.chance(0.65) ? 0 : 1];
}

// Copies of an object, in an arrangement that is a little irregular.
void make_some(Scene& scene, SceneRandom& random, const SceneOptions& options) {
  SceneObject first = random_object(random, options, colours_of(scene.background));
  first.size = SizeWord::Small;
  set_radius(first, random);
  first.radius *= first.is_thing() ? 0.95f : 1.05f;
  const std::vector<Spot>& spots = arrangement(2 + random.below(3), random);
  const double shift_x = random.between(-0.06, 0.06), shift_y = random.between(-0.06, 0.06);
  while (scene.objects.size() < spots.size()) {
    SceneObject object = first;
    const Spot& spot = spots[scene.objects.size()];
    object.x = static_cast<float>(spot.x + shift_x + random.between(-0.03, 0.03));
    object.y = static_cast<float>(spot.y + shift_y + random.between(-0.03, 0.03));
    keep_inside(object, options.aspect);
    const bool free = std::all_of(scene.objects.begin(), scene.objects.end(), [&](const SceneObject& other) {
      return distance_between(object, other, options.aspect) > 2.2f * first.radius;
    });
    if (free) scene.objects.push_back(object);
    else scene.objects.clear();
  }
}

void make_couple(Scene& scene, SceneRandom& random, const SceneOptions& options) {
  std::vector<int> taken = colours_of(scene.background);
  SceneObject first = random_object(random, options, taken);
  if (!first.is_thing())
    for (const int colour : colours_of(first.fill)) taken.push_back(colour);
  SceneObject second = random_object(random, options, taken);
  while (first.is_thing() == second.is_thing() &&
         (first.is_thing() ? first.thing == second.thing : first.figure == second.figure))
    second = random_object(random, options, taken);
  scene.relation = static_cast<Relation>(random.below(4));
  const bool level = scene.relation == Relation::LeftOf || scene.relation == Relation::RightOf;
  const bool first_comes_first = scene.relation == Relation::LeftOf || scene.relation == Relation::Above;
  for (SceneObject* object : {&first, &second}) {
    object->size = SizeWord::Medium;
    set_radius(*object, random);
    const bool near = (object == &first) == first_comes_first;
    const float along = near ? random.between(0.2, 0.25) : random.between(0.75, 0.8), across = random.between(0.42, 0.58);
    object->x = level ? along : across;
    object->y = level ? across : along;
    object->place = level ? Place{near ? 0 : 2, 1} : Place{1, near ? 0 : 2};
    keep_inside(*object, options.aspect);
  }
  scene.objects = {first, second};
}

}  // namespace

bool are_apart(int a, int b) {
  const Rgb8 &p = scene_colours()[static_cast<size_t>(a)].rgb, &q = scene_colours()[static_cast<size_t>(b)].rgb;
  double sum = 0;
  for (size_t c = 0; c < 3; ++c) sum += std::pow(double(p[c]) - double(q[c]), 2);
  return sum > 100 * 100;
}

int random_colour(SceneRandom& random, const std::vector<int>& others) {
  std::vector<int> possible;
  for (int c = 0; c < static_cast<int>(scene_colours().size()); ++c)
    if (std::all_of(others.begin(), others.end(), [&](int other) { return are_apart(c, other); })) possible.push_back(c);
  return random.one_of(possible);
}

std::vector<int> colours_of(const Fill& fill) {
  if (fill.pattern == ScenePattern::Plain) return {fill.colour};
  return {fill.colour, fill.second};
}

std::vector<int> colours_in(const Scene& scene) {
  std::vector<int> colours = colours_of(scene.background);
  for (const SceneObject& object : scene.objects)
    if (!object.is_thing())
      for (const int colour : colours_of(object.fill)) colours.push_back(colour);
  return colours;
}

Fill random_background(SceneRandom& random, const SceneOptions& options) {
  Fill fill = plain_fill(random_colour(random, {}));
  if (random.chance(options.pattern_share)) {
    const std::vector<ScenePattern> patterns = {ScenePattern::Stripes, ScenePattern::Dots, ScenePattern::Gradient};
    const ScenePattern pattern = random.one_of(patterns);
    add_pattern(fill, pattern, random_colour(random, {fill.colour}), random);
    fill.period = pattern == ScenePattern::Stripes ? random.between(0.16, 0.22) : random.between(0.14, 0.19);
  }
  free_colours(fill, random, options);
  return fill;
}

SceneObject random_object(SceneRandom& random, const SceneOptions& options, const std::vector<int>& other_colours) {
  SceneObject object;
  if (options.things > 0 && random.chance(options.thing_share)) {
    object.thing = random.below(options.things);
    return object;
  }
  object.figure = static_cast<Figure>(random.below(kFigures));
  const bool round = object.figure == Figure::Circle || object.figure == Figure::Ring;
  object.angle = round ? 0 : random.between(-0.12, 0.12);
  object.fill = plain_fill(random_colour(random, other_colours));
  const bool wide = object.figure != Figure::Ring && object.figure != Figure::Cross && object.figure != Figure::Star;
  if (wide && random.chance(options.pattern_share / 2)) {
    std::vector<int> taken = other_colours;
    taken.push_back(object.fill.colour);
    add_pattern(object.fill, random.chance(0.5) ? ScenePattern::Stripes : ScenePattern::Dots, random_colour(random, taken),
                random);
    object.fill.period = random.between(0.09, 0.11);
  }
  free_colours(object.fill, random, options);
  return object;
}

Place random_place(SceneRandom& random) {
  if (random.chance(0.3)) return {1, 1};
  const int place = random.below(9);
  return {place % 3, place / 3};
}

void set_radius(SceneObject& object, SceneRandom& random) {
  constexpr double kFigure[] = {0.115, 0.185, 0.28}, kThing[] = {0.14, 0.215, 0.31};
  const double usual = (object.is_thing() ? kThing : kFigure)[static_cast<size_t>(object.size)];
  object.radius = static_cast<float>(usual) * random.between(0.93, 1.07);
}

void set_centre(SceneObject& object, SceneRandom& random, double aspect) {
  constexpr double kAt[] = {0.22, 0.5, 0.78};
  object.x = static_cast<float>(kAt[object.place.column]) + random.between(-0.035, 0.035);
  object.y = static_cast<float>(kAt[object.place.row]) + random.between(-0.035, 0.035);
  keep_inside(object, aspect);
}

float distance_between(const SceneObject& a, const SceneObject& b, double aspect) {
  const Sides side = shorter_side(aspect);
  return static_cast<float>(std::hypot((a.x - b.x) / side.x, (a.y - b.y) / side.y));
}

Scene random_scene(SceneRandom& random, const SceneOptions& options) {
  Scene scene;
  scene.background = random_background(random, options);
  const double kind = random.share();
  if (kind < options.some_share) {
    scene.kind = Scene::Some;
    make_some(scene, random, options);
  } else if (kind < options.some_share + options.couple_share) {
    scene.kind = Scene::Couple;
    make_couple(scene, random, options);
  } else {
    SceneObject object = random_object(random, options, colours_of(scene.background));
    object.size = static_cast<SizeWord>(random.below(3));
    object.place = random_place(random);
    set_radius(object, random);
    set_centre(object, random, options.aspect);
    scene.objects.push_back(object);
  }
  return scene;
}

}  // namespace flux2
