// The bundled model follows its prompts. The test measures the colour of the background, the colour of the shape and the position
// of its centre, for 24 prompts with two seeds each.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "engine/engine.h"
#include "image/pixels.h"
#include "tests/support/paths.h"

namespace flux2 {
namespace {

using Rgb = std::array<double, 3>;

// The colours of the images that the model was trained on.
const std::map<std::string, Rgb> kColours = {{"red", {226, 42, 40}},     {"blue", {42, 92, 224}},    {"green", {45, 155, 66}},
                                             {"yellow", {255, 214, 42}}, {"purple", {135, 56, 190}}, {"orange", {255, 146, 30}},
                                             {"gray", {142, 142, 142}},  {"pink", {255, 145, 200}},  {"black", {16, 16, 16}},
                                             {"white", {255, 255, 255}}, {"cyan", {76, 208, 226}},   {"brown", {116, 73, 36}}};

double distance(const Rgb& a, const Rgb& b) {
  return std::sqrt((a[0] - b[0]) * (a[0] - b[0]) + (a[1] - b[1]) * (a[1] - b[1]) + (a[2] - b[2]) * (a[2] - b[2]));
}

std::string name_of_colour(const Rgb& c) {
  return std::min_element(kColours.begin(), kColours.end(),
                          [&](const auto& a, const auto& b) { return distance(a.second, c) < distance(b.second, c); })
      ->first;
}

struct Wish {
  const char *size, *colour, *shape, *place, *background;

  std::string prompt() const {
    return fmt::format("a {}{}{} {} {} on a {} background", size, *size ? " " : "", colour, shape, place, background);
  }
};

struct Seen {
  std::string colour, background;
  double x = 0.5, y = 0.5;  // centre of the shape, 0…1
};

Rgb pixel(const Image& image, int x, int y) {
  const uint8_t* p = image.at(x, y);
  return {static_cast<double>(p[0]), static_cast<double>(p[1]), static_cast<double>(p[2])};
}

// The background is the most frequent colour of the border; the shape is what differs from it.
Seen look(const Image& image) {
  std::map<std::string, int> rim, inside;
  std::map<std::string, Rgb> sum;
  const int n = image.width;
  for (int i = 2; i < n - 10; ++i)  // the decoder leaves an artefact in the lower right corner
    for (const auto& [x, y] : {std::pair{i, 2}, {2, i}, {i, n - 3}, {n - 3, i}}) ++rim[name_of_colour(pixel(image, x, y))];
  Seen seen;
  seen.background = std::max_element(rim.begin(), rim.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
  double count = 0, sx = 0, sy = 0;
  for (int y = 4; y < n - 4; ++y)
    for (int x = 4; x < n - 4; ++x) {
      if (x > n - 12 && y > n - 12) continue;
      const Rgb c = pixel(image, x, y);
      if (distance(c, kColours.at(seen.background)) < 90) continue;
      ++inside[name_of_colour(c)];
      sx += x;
      sy += y;
      ++count;
    }
  if (count == 0) return seen;
  seen.colour = std::max_element(inside.begin(), inside.end(), [](auto& a, auto& b) { return a.second < b.second; })->first;
  seen.x = sx / count / n;
  seen.y = sy / count / n;
  return seen;
}

bool in_place(const std::string& place, const Seen& s) {
  const bool top = s.y<0.42, bottom = s.y> 0.58, left = s.x<0.42, right = s.x> 0.58;
  const bool wants_top = place.find("top") != std::string::npos, wants_bottom = place.find("bottom") != std::string::npos;
  const bool wants_left = place.find("left") != std::string::npos, wants_right = place.find("right") != std::string::npos;
  return top == wants_top && bottom == wants_bottom && left == wants_left && right == wants_right;
}

constexpr std::array<Wish, 24> kWishes = {{
    {"large", "red", "circle", "in the center", "blue"},    {"", "yellow", "star", "at the top left", "black"},
    {"", "green", "square", "on the right", "white"},       {"large", "purple", "heart", "in the center", "yellow"},
    {"", "orange", "triangle", "at the bottom", "gray"},    {"", "blue", "diamond", "at the top right", "pink"},
    {"large", "black", "ring", "in the center", "cyan"},    {"", "white", "cross", "on the left", "green"},
    {"", "pink", "circle", "at the bottom right", "brown"}, {"small", "red", "square", "at the bottom left", "white"},
    {"", "brown", "star", "in the center", "orange"},       {"", "cyan", "heart", "at the top", "purple"},
    {"large", "green", "triangle", "in the center", "red"}, {"", "yellow", "circle", "on the left", "purple"},
    {"", "white", "square", "at the top", "blue"},          {"", "red", "heart", "at the bottom", "black"},
    {"large", "blue", "star", "in the center", "yellow"},   {"", "gray", "circle", "on the right", "green"},
    {"", "orange", "square", "at the bottom left", "cyan"}, {"", "purple", "diamond", "at the top left", "white"},
    {"", "black", "circle", "at the bottom right", "pink"}, {"", "green", "heart", "on the left", "gray"},
    {"large", "white", "circle", "in the center", "brown"}, {"", "cyan", "square", "at the top right", "red"},
}};

TEST(Pico, FollowsColourPositionAndBackground) {
  const Engine engine({.device = "cpu", .threads = 0, .profile = Profile::Fast});
  ModelQuery query;
  query.bundled = test::pico_folder();
  query.environment = [](const char*) -> const char* { return nullptr; };
  const ModelFiles files = locate_model(query, {});
  EXPECT_TRUE(files.bundled);
  EXPECT_EQ(files.defaults.steps, 20);
  EXPECT_EQ(files.defaults.text_length, 64);
  const auto model = engine.open(files, {});

  int pictures = 0, background = 0, colour = 0, place = 0, all = 0;
  for (const Wish& wish : kWishes) {
    Request request;
    request.prompt = wish.prompt();
    request.width = files.defaults.width;
    request.height = files.defaults.height;
    request.steps = files.defaults.steps;
    request.cfg = files.defaults.guidance;
    request.seed = 11;
    request.batch = 2;
    text_to_image(*model, request, {}, [&](const Picture& p) {
      const Seen seen = look(p.decoded.rgb8(Rounding::Nearest));
      const bool b = seen.background == wish.background, c = seen.colour == wish.colour, w = in_place(wish.place, seen);
      ++pictures;
      background += b;
      colour += c;
      place += w;
      all += b && c && w;
      if (!(b && c && w))
        fmt::print("seed {}: \"{}\" shows {} at ({:.2f}, {:.2f}) on {}\n", p.seed, request.prompt, seen.colour, seen.x, seen.y,
                   seen.background);
    });
  }
  fmt::print("of {} pictures: background {}, colour {}, place {}, all three {}\n", pictures, background, colour, place, all);
  EXPECT_EQ(pictures, 48);
  EXPECT_GE(background, 46);
  EXPECT_GE(colour, 43);
  EXPECT_GE(place, 43);
  EXPECT_GE(all, 40);
}

}  // namespace
}  // namespace flux2
