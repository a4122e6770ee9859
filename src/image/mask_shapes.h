#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "image/mask.h"

namespace flux2 {

// Ways to select part of an image without painting a mask. Each add_… sets what it selects to 255 and keeps the rest of the mask.
// A selection without a single pixel is InvalidArgument.

struct Pixel {
  int x = 0, y = 0;
  bool operator==(const Pixel&) const = default;
};

// How much a channel may differ from the colour that is looked for, 0 to 255.
constexpr int kWandTolerance = 32;

struct Wand {
  Pixel at;
  int tolerance = kWandTolerance;
};
Wand parse_wand(std::string_view text);  // "x,y" or "x,y:tolerance"

struct ColourChoice {
  std::array<uint8_t, 3> colour{};
  int tolerance = kWandTolerance;
};
ColourChoice parse_colour_choice(std::string_view text);  // "#rrggbb" or "#rrggbb:tolerance"

std::vector<Pixel> parse_polygon(std::string_view text);  // "x,y x,y x,y …", at least three corners

// A place in an image, in pixels, that belongs to the object that is looked for or does not.
struct MaskPoint {
  double x = 0, y = 0;
  bool include = true;
};
MaskPoint parse_mask_point(std::string_view text);  // "x,y", or "x,y:0" for a place that does not belong to the object

// The largest ellipse in a box.
void add_ellipse(Image& mask, const Box& box);
// By the even-odd rule, sampled in the middle of each pixel.
void add_polygon(Image& mask, const std::vector<Pixel>& corners);
// The connected area around a pixel (by edges, not corners) whose colours are close to the colour of that pixel.
void add_wand(Image& mask, const Image& picture, const Wand& wand);
// Every pixel with a colour close to the one given.
void add_colour(Image& mask, const Image& picture, const ColourChoice& choice);
// Every pixel in which two images of the same size differ by more than `tolerance`; small differences come from lossy formats.
void add_difference(Image& mask, const Image& picture, const Image& other, int tolerance = 12);

// The image with the mask over it, half red, so that a person can check it.
Image with_overlay(const Image& picture, const Image& mask);

}  // namespace flux2
