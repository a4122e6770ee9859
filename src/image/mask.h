#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "image/image.h"

namespace flux2 {

// A mask is a picture of one channel: 255 to be made anew, 0 to be kept, between a blend of both.

// A rectangle of pixels; it may reach beyond the picture it is about.
struct Box {
  int x = 0, y = 0, width = 0, height = 0;

  int64_t area() const { return int64_t{width} * height; }
  bool operator==(const Box&) const = default;
};
Box parse_box(std::string_view text);  // "x,y,w,h"

// "a,b,c,d": four whole numbers no larger than a picture's side; none when the text is something else.
std::optional<std::array<int, 4>> four_numbers(std::string_view text);

Image luminance(const Image& picture);  // 8 bits, alpha ignored, weighted as Pillow does

// What a picture says as a mask: white new, black kept; where it has transparency that decides, transparent new.
Image mask_of_picture(const Image& picture);
bool has_transparency(const Image& picture);

void add_box(Image& mask, const Box& box);  // what lies outside is left out; no part inside is InvalidArgument
void invert(Image& mask);

// Every pixel takes the largest value within `radius`.
Image grown(const Image& mask, int radius);
// Edges become ramps that reach `radius` to either side. Beyond the border the mask goes on as it is there.
Image feathered(const Image& mask, int radius);

// The smallest box around everything that is not 0; none when nothing is.
std::optional<Box> bounds(const Image& mask);

// kept · (255 − m) + made · m for every pixel; where m is 0 the bytes of `kept`, where it is 255 those of `made`. All of one
// size; `kept` RGB or RGBA (made anew it is opaque), `made` RGB.
void blend(Image& kept, const Image& made, const Image& mask);

// The box of a picture, its border repeated where the box reaches beyond.
Image crop_extended(const Image& picture, const Box& box);

}  // namespace flux2
