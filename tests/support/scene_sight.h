#pragma once

#include <optional>
#include <vector>

#include "scenes/sprites.h"

// What can be seen in a picture of a scene, by simple means: colours, areas, moments. Nothing here is learnt.
namespace flux2::test {

// Pixels that belong together.
struct Blob {
  int width = 0, height = 0;
  std::vector<uint8_t> inside;                      // [height, width]
  double area = 0;                                  // pixels
  double x = 0, y = 0;                              // centre of mass
  double spread = 0;                                // root of the mean square distance from it
  double left = 0, top = 0, right = 0, bottom = 0;  // nearly all of it
};

// The colour of scene_colours() that is nearest.
int nearest_colour(const uint8_t* rgb);

// The background, from the border of the picture.
struct SeenBackground {
  ScenePattern pattern = ScenePattern::Plain;
  int colour = 0, second = 0;  // the two of a pattern in any order; of a gradient from left to right or from top to bottom
  bool downwards = false;
};
SeenBackground see_background(const Image& image);

Blob whole_of(std::vector<uint8_t> inside, int width, int height);  // measures them
Blob see_foreground(const Image& image, const SeenBackground& background);
Blob see_colour(const Image& image, int colour);  // the largest area of a colour
std::vector<Blob> parts_of(const Blob& blob);     // connected, the largest first, specks left out

int colour_of(const Image& image, const Blob& blob);  // the most frequent
Figure figure_of(const Blob& blob);
double radius_of(const Blob& blob, Figure figure);  // in pixels, of a figure with that spread
int thing_of(const Image& image, const Blob& blob, const SpriteSheet& sheet);
double radius_of_thing(const Blob& blob, int thing, const SpriteSheet& sheet);

}  // namespace flux2::test
