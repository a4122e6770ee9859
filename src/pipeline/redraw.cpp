#include "pipeline/redraw.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace flux2 {

namespace {

std::vector<int> starts(int length, int tile, int overlap) {
  if (length <= tile) return {0};
  const int step = tile - overlap, count = (length - overlap + step - 1) / step;
  std::vector<int> at;
  for (int i = 0; i < count; ++i) at.push_back(static_cast<int>(int64_t{i} * (length - tile) / (count - 1)));
  return at;
}

// How much each pixel of a tile counts: less and less towards an edge behind which the image goes on.
std::vector<float> fading(int begin, int size, int length, int overlap) {
  std::vector<float> weight(static_cast<size_t>(size), 1.0f);
  for (int i = 0; i < std::min(overlap, size); ++i) {
    const float w = (static_cast<float>(i) + 0.5f) / static_cast<float>(overlap);
    auto &head = weight[static_cast<size_t>(i)], &tail = weight[static_cast<size_t>(size - 1 - i)];
    if (begin > 0) head = std::min(head, w);
    if (begin + size < length) tail = std::min(tail, w);
  }
  return weight;
}

// One pass of a box blur along an axis with repeated edges: n values `stride` apart.
void blur_line(const float* in, float* out, int n, size_t stride, int radius) {
  const auto at = [&](int i) { return in[static_cast<size_t>(std::clamp(i, 0, n - 1)) * stride]; };
  double sum = 0;
  for (int i = -radius; i <= radius; ++i) sum += at(i);
  const double part = 1.0 / (2 * radius + 1);
  for (int i = 0; i < n; ++i) {
    out[static_cast<size_t>(i) * stride] = static_cast<float>(sum * part);
    sum += at(i + radius + 1) - at(i - radius);
  }
}

// Three passes of a box: close to a Gaussian.
std::vector<float> blurred(std::vector<float> image, int width, int height, int radius) {
  std::vector<float> other(image.size());
  const size_t row = static_cast<size_t>(width) * 3;
  for (int pass = 0; pass < 3; ++pass) {
    for (int y = 0; y < height; ++y)
      for (size_t c = 0; c < 3; ++c)
        blur_line(&image[static_cast<size_t>(y) * row + c], &other[static_cast<size_t>(y) * row + c], width, 3, radius);
    for (size_t x = 0; x < row; ++x) blur_line(&other[x], &image[x], height, row, radius);
  }
  return image;
}

uint8_t level(float value) { return static_cast<uint8_t>(std::lround(std::clamp(value, 0.0f, 255.0f))); }

}  // namespace

std::vector<TileCorner> tile_corners(int width, int height, int tile_width, int tile_height, int overlap) {
  require(width >= tile_width && height >= tile_height && overlap < std::min(tile_width, tile_height),
          "tiles of {}x{} with {} in common for an image of {}x{}", tile_width, tile_height, overlap, width, height);
  std::vector<TileCorner> corners;
  for (int top : starts(height, tile_height, overlap))
    for (int left : starts(width, tile_width, overlap)) corners.push_back({left, top});
  return corners;
}

TileBlender::TileBlender(int width, int height, int overlap)
    : width_(width),
      height_(height),
      overlap_(overlap),
      sum_(static_cast<size_t>(width) * static_cast<size_t>(height) * 3),
      weight_(static_cast<size_t>(width) * static_cast<size_t>(height)) {}

void TileBlender::add(const Image& tile, const TileCorner& at) {
  require(tile.channels == 3 && at.left + tile.width <= width_ && at.top + tile.height <= height_, "a tile outside its image");
  const auto down = fading(at.top, tile.height, height_, overlap_), across = fading(at.left, tile.width, width_, overlap_);
  for (int y = 0; y < tile.height; ++y)
    for (int x = 0; x < tile.width; ++x) {
      const float w = down[static_cast<size_t>(y)] * across[static_cast<size_t>(x)];
      const size_t to = static_cast<size_t>(at.top + y) * static_cast<size_t>(width_) + static_cast<size_t>(at.left + x);
      weight_[to] += w;
      for (size_t c = 0; c < 3; ++c) sum_[3 * to + c] += w * static_cast<float>(tile.at(x, y)[c]);
    }
}

Image TileBlender::finish() const {
  Image image(width_, height_, 3);
  for (size_t i = 0; i < weight_.size(); ++i) {
    require(weight_[i] > 0, "no tile covers pixel {}", i);
    for (size_t c = 0; c < 3; ++c) image.pixels[3 * i + c] = level(sum_[3 * i + c] / weight_[i]);
  }
  return image;
}

Image padded_to(const Image& rgb, int width, int height) {
  if (rgb.width >= width && rgb.height >= height) return rgb;
  Image image(std::max(rgb.width, width), std::max(rgb.height, height), 3);
  for (int y = 0; y < image.height; ++y)
    for (int x = 0; x < image.width; ++x)
      std::copy_n(rgb.at(std::min(x, rgb.width - 1), std::min(y, rgb.height - 1)), 3, image.at(x, y));
  return image;
}

Image with_colours_of(const Image& details, const Image& colours, int radius) {
  require(details.width == colours.width && details.height == colours.height && details.channels == 3 && colours.channels == 3,
          "colours of an image of another size");
  const auto blur = [&](const Image& image) {
    return blurred(std::vector<float>(image.pixels.begin(), image.pixels.end()), image.width, image.height, radius);
  };
  const std::vector<float> from = blur(details), to = blur(colours);
  Image result = details;
  for (size_t i = 0; i < from.size(); ++i) result.pixels[i] = level(static_cast<float>(details.pixels[i]) + to[i] - from[i]);
  return result;
}

}  // namespace flux2
