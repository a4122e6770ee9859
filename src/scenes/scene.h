#pragma once

#include <array>
#include <cstdint>
#include <vector>

// Drawn images that a program can describe exactly: a few coloured shapes and small pictures of things on a background. A very
// small model can be trained on them from nothing, and what it draws can be measured.
namespace flux2 {

using Rgb8 = std::array<uint8_t, 3>;

enum class Figure { Circle, Square, Triangle, Star, Heart, Diamond, Ring, Cross };
constexpr int kFigures = 8;

enum class ScenePattern { Plain, Stripes, Dots, Gradient };  // objects have the first three

enum class SizeWord { Small, Medium, Large };

// A place in the picture: column and row 0, 1, 2.
struct Place {
  int column = 1, row = 1;
  bool operator==(const Place&) const = default;
};

// How an area is filled. Lengths are shares of the shorter side of the picture.
struct Fill {
  ScenePattern pattern = ScenePattern::Plain;
  int colour = 0, second = 0;      // of the pattern, in scene_colours()
  Rgb8 rgb = {}, second_rgb = {};  // what is painted
  float period = 0.16f;            // of stripes and dots
  float shift_x = 0, shift_y = 0;  // where they begin, in periods
  int direction = 0;               // of stripes: 0 upright, 1 level, 2 and 3 slanted; of a gradient: 0 to the right, 1 down
  bool operator==(const Fill&) const = default;
};

struct SceneObject {
  int thing = -1;  // in the sheet of sprites; -1: a figure
  Figure figure = Figure::Circle;
  Fill fill;  // of a figure
  SizeWord size = SizeWord::Medium;
  Place place;
  // What is painted: centre and half the extent, as shares of width, height and the shorter side; radians.
  float x = 0.5f, y = 0.5f, radius = 0.2f, angle = 0;

  bool is_thing() const { return thing >= 0; }
  bool operator==(const SceneObject&) const = default;
};

enum class Relation { LeftOf, RightOf, Above, Below };

struct Scene {
  enum Kind {
    One,    // one object with a place and a size
    Some,   // two to four equal objects
    Couple  // two different objects; the first has `relation` to the second
  };
  Kind kind = One;
  Relation relation = Relation::LeftOf;
  Fill background;
  std::vector<SceneObject> objects;
  bool operator==(const Scene&) const = default;
};

}  // namespace flux2
