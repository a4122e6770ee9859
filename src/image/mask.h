#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "image/image.h"

namespace flux2 {

// A mask is an image with one channel: 255 is regenerated, 0 is kept, values between are blended.

// A rectangle of pixels; it may reach beyond the image it is about.
struct Box {
  int x = 0, y = 0, width = 0, height = 0;

  int64_t area() const { return int64_t{width} * height; }
  bool operator==(const Box&) const = default;
};
Box parse_box(std::string_view text);  // "x,y,w,h"

// "a,b,c,d": four whole numbers no larger than an image's side; none when the text is something else.
std::optional<std::array<int, 4>> four_numbers(std::string_view text);

Image luminance(const Image& picture);  // 8 bits, alpha ignored, weighted as Pillow does

// Reads an image as a mask: white is regenerated, black is kept. If the image has transparency, that is used instead: transparent
// areas are regenerated.
Image mask_of_picture(const Image& picture);
bool has_transparency(const Image& picture);

// The mask at another size. A mask with only the values 0 and 255 stays binary; others are interpolated.
Image scaled_mask(const Image& mask, int width, int height);

void add_box(Image& mask, const Box& box);  // clipped to the mask; a box that is entirely outside is InvalidArgument
void invert(Image& mask);

// Each pixel becomes the largest value within `radius`.
Image grown(const Image& mask, int radius);
// Edges become ramps that reach `radius` to either side. Beyond the border, the border value continues.
Image feathered(const Image& mask, int radius);

// The smallest box around everything that is not 0; none when nothing is.
std::optional<Box> bounds(const Image& mask);

// kept · (255 − m) + made · m for every pixel; where m is 0 the bytes of `kept`, where it is 255 those of `made`. All have the
// same size; `kept` is RGB or RGBA (regenerated pixels are opaque), `made` is RGB.
void blend(Image& kept, const Image& made, const Image& mask);

// The part of an image inside the box. Where the box reaches beyond the image, the border pixels are repeated.
Image crop_extended(const Image& picture, const Box& box);

}  // namespace flux2
