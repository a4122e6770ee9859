#include "image/image.h"

#include <algorithm>

#include "base/error.h"

namespace flux2 {

Image::Image(int w, int h, int c) : width(w), height(h), channels(c) {
  require(c == 1 || c == 3 || c == 4, "a picture has 1, 3 or 4 channels, not {}", c);
  check_image_size(w, h);
  pixels.resize(row_bytes() * static_cast<size_t>(h));
}

void check_image_size(int64_t width, int64_t height, int64_t max_pixels) {
  if (width < 1 || height < 1) fail(ErrorCode::BadFile, "the image has no pixels ({}×{})", width, height);
  if (width > kMaxImageSide || height > kMaxImageSide) {
    fail(ErrorCode::BadFile, "the image is {}×{}; a side may have at most {} pixels", width, height, kMaxImageSide);
  }
  if (width * height > max_pixels) {
    fail(ErrorCode::BadFile, "the image is {}×{}; at most {} pixels are read", width, height, max_pixels);
  }
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
  const uint8_t* from = image.pixels.data();
  uint8_t* to = rgb.pixels.data();
  const size_t count = image.pixels.size() / static_cast<size_t>(image.channels);
  for (size_t i = 0; i < count; ++i, from += image.channels, to += 3) {
    for (int c = 0; c < 3; ++c) {
      const uint8_t value = from[image.channels == 1 ? 0 : c];
      to[c] = image.channels == 4 && rule == AlphaRule::OverWhite ? over_white(value, from[3]) : value;
    }
  }
  return rgb;
}

Image crop(const Image& image, int left, int top, int width, int height) {
  require(left >= 0 && top >= 0 && width > 0 && height > 0 && width <= image.width - left && height <= image.height - top,
          "crop {}×{} at ({}, {}) lies outside a picture of {}×{}", width, height, left, top, image.width, image.height);
  Image part(width, height, image.channels);
  for (int y = 0; y < height; ++y) std::copy_n(image.at(left, top + y), part.row_bytes(), part.row(y));
  return part;
}

Image centre_crop(const Image& image, int width, int height) {
  return crop(image, (image.width - width) / 2, (image.height - height) / 2, width, height);
}

Image apply_orientation(Image image, int orientation) {
  if (orientation < 2 || orientation > 8) return image;
  const bool transpose = orientation >= 5;
  const bool mirror_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool mirror_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image upright(transpose ? image.height : image.width, transpose ? image.width : image.height, image.channels);
  for (int y = 0; y < upright.height; ++y) {
    for (int x = 0; x < upright.width; ++x) {
      const int u = transpose ? y : x, v = transpose ? x : y;
      const uint8_t* from = image.at(mirror_x ? image.width - 1 - u : u, mirror_y ? image.height - 1 - v : v);
      std::copy_n(from, image.channels, upright.at(x, y));
    }
  }
  return upright;
}

}  // namespace flux2
