#include "image/vision_prep.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "image/resize.h"

namespace flux2 {

Image vision_image(const Image& image, const VisionRules& rules) {
  const int step = rules.patch * rules.merge;
  require(step > 0 && rules.longest > 0 && image.width > 0 && image.height > 0, "an image of {}×{} for patches of {}",
          image.width, image.height, step);
  double height = image.height, width = image.width;
  const double ratio = std::max(height / rules.longest, width / rules.longest);
  if (ratio > 1) height = std::floor(height / ratio), width = std::floor(width / ratio);
  const auto whole = [&](double side) { return (std::max(static_cast<int>(side), 1) - 1) / step * step + step; };
  return resize_to_rgb(image, AlphaRule::OverWhite, whole(width), whole(height), ResizeFilter::Bicubic);
}

std::vector<float> vision_patches(const Image& rgb, int patch, const SampleScale& scale) {
  require(rgb.channels == 3 && rgb.width % patch == 0 && rgb.height % patch == 0, "patches of {} in an image of {}×{}×{}", patch,
          rgb.width, rgb.height, rgb.channels);
  std::array<std::array<float, 256>, 3> table;
  for (size_t c = 0; c < 3; ++c)
    for (size_t v = 0; v < 256; ++v)
      table[c][v] = static_cast<float>((static_cast<double>(v) / 255.0 - scale.mean[c]) / scale.deviation[c]);
  std::vector<float> values;
  values.reserve(rgb.pixels.size());
  for (int top = 0; top < rgb.height; top += patch)
    for (int left = 0; left < rgb.width; left += patch)
      for (int y = top; y < top + patch; ++y) {
        const uint8_t* from = rgb.at(left, y);
        for (int i = 0; i < patch * 3; ++i) values.push_back(table[static_cast<size_t>(i % 3)][from[i]]);
      }
  return values;
}

Image joined_images(const std::vector<Image>& images) {
  check(!images.empty(), "there is no image to look at");
  if (images.size() == 1) return images[0];
  int64_t width = 0, height = 0;
  for (const Image& image : images) width += image.width, height = std::max<int64_t>(height, image.height);
  check_image_size(width, height, {.pixels = kMaxImagePixels});
  Image joined(static_cast<int>(width), static_cast<int>(height), 3);
  std::fill(joined.pixels.begin(), joined.pixels.end(), uint8_t{255});
  int left = 0;
  for (const Image& image : images) {
    const int top = (joined.height - image.height) / 2;
    for (int y = 0; y < image.height; ++y) rgb_row(image, y, AlphaRule::Drop, joined.at(left, top + y));
    left += image.width;
  }
  return joined;
}

Image with_at_most(const Image& image, int64_t pixels) {
  const double area = static_cast<double>(image.width) * image.height;
  if (area <= static_cast<double>(pixels)) return image;
  const double scale = std::sqrt(static_cast<double>(pixels) / area);
  const auto scaled = [&](int side) { return std::max(1, static_cast<int>(side * scale)); };
  return resize(image, scaled(image.width), scaled(image.height));
}

}  // namespace flux2
