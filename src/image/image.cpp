#include "image/image.h"

#include <algorithm>

#include "base/error.h"

namespace flux2 {

Image::Image(int w, int h, int c) : width(w), height(h), channels(c) {
  require(c == 1 || c == 3 || c == 4, "an image has 1, 3 or 4 channels, not {}", c);
  check_image_size(w, h, {.side = kMaxImageSide, .pixels = kMaxImagePixels});
  pixels.resize(row_bytes() * static_cast<size_t>(h));
}

void check_image_size(int64_t width, int64_t height, const ImageLimits& limits) {
  if (width < 1 || height < 1) fail(ErrorCode::BadFile, "the image has no pixels ({}×{})", width, height);
  const std::string size = fmt::format("the image is {}×{}", width, height);
  check_limit("image-side", static_cast<uint64_t>(std::max(width, height)),
              static_cast<uint64_t>(std::min(limits.side, kMaxImageSide)), size + ": a side has {} pixels");
  check_limit("image-pixels", static_cast<uint64_t>(width * height), static_cast<uint64_t>(limits.pixels),
              size + ": it has {} pixels");
}

namespace {

uint8_t over_white(unsigned value, unsigned alpha) {
  const unsigned sum = value * alpha + 255 * (255 - alpha) + 128;
  return static_cast<uint8_t>((sum + (sum >> 8)) >> 8);
}

}  // namespace

Image to_rgb(const Image& image, AlphaRule rule) {
  if (image.channels == 3) return image;
  Image rgb(image.width, image.height, 3);
  for (int y = 0; y < image.height; ++y) rgb_row(image, y, rule, rgb.row(y));
  return rgb;
}

void rgb_row(const Image& image, int y, AlphaRule rule, uint8_t* out) {
  const uint8_t* from = image.row(y);
  if (image.channels == 3) {
    std::copy_n(from, image.row_bytes(), out);
    return;
  }
  for (int x = 0; x < image.width; ++x, from += image.channels, out += 3) {
    for (int c = 0; c < 3; ++c) {
      const uint8_t value = from[image.channels == 1 ? 0 : c];
      out[c] = image.channels == 4 && rule == AlphaRule::OverWhite ? over_white(value, from[3]) : value;
    }
  }
}

Image crop(const Image& image, int left, int top, int width, int height) {
  require(left >= 0 && top >= 0 && width > 0 && height > 0 && width <= image.width - left && height <= image.height - top,
          "crop {}×{} at ({}, {}) lies outside an image of {}×{}", width, height, left, top, image.width, image.height);
  Image part(width, height, image.channels);
  for (int y = 0; y < height; ++y) std::copy_n(image.at(left, top + y), part.row_bytes(), part.row(y));
  return part;
}

Image centre_crop(const Image& image, int width, int height) {
  return crop(image, (image.width - width) / 2, (image.height - height) / 2, width, height);
}

namespace {

void mirror_rows(Image& image) {
  for (int y = 0; y < image.height; ++y)
    for (int left = 0, right = image.width - 1; left < right; ++left, --right)
      std::swap_ranges(image.at(left, y), image.at(left, y) + image.channels, image.at(right, y));
}

void flip(Image& image) {
  for (int top = 0, bottom = image.height - 1; top < bottom; ++top, --bottom)
    std::swap_ranges(image.row(top), image.row(top) + image.row_bytes(), image.row(bottom));
}

}  // namespace

Image apply_orientation(Image image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  if (orientation == 2 || orientation == 3) mirror_rows(image);
  if (orientation == 3 || orientation == 4) flip(image);
  if (orientation <= 4) return image;
  const bool mirror_x = orientation == 7 || orientation == 8, mirror_y = orientation == 6 || orientation == 7;
  Image upright(image.height, image.width, image.channels);
  for (int y = 0; y < upright.height; ++y) {
    for (int x = 0; x < upright.width; ++x) {
      const uint8_t* from = image.at(mirror_x ? image.width - 1 - y : y, mirror_y ? image.height - 1 - x : x);
      std::copy_n(from, image.channels, upright.at(x, y));
    }
  }
  return upright;
}

}  // namespace flux2
