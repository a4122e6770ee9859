#include "train/data/buckets.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "image/resize.h"
#include "image/shrink_by_area.h"

namespace flux2 {

namespace {

int64_t to_step(int64_t x) { return x - x % kBucketStep; }

double aspect(PixelSize size) { return static_cast<double>(size.width) / static_cast<double>(size.height); }

// The first of the sizes whose aspect ratio is nearest to that of the image.
PixelSize nearest_aspect(const std::vector<PixelSize>& sizes, PixelSize image) {
  PixelSize best;
  double least = std::numeric_limits<double>::infinity();
  for (const PixelSize& size : sizes)
    if (const double error = std::abs(aspect(size) - aspect(image)); error < least) best = size, least = error;
  return best;
}

void check_resolution(PixelSize resolution, const Buckets::Options& options) {
  check(resolution.width >= kSmallestSide && resolution.height >= kSmallestSide,
        "the resolution {}×{} is too small: {}×{} is the smallest", resolution.width, resolution.height, kSmallestSide,
        kSmallestSide);
  check(resolution.width <= kLargestArea && resolution.height <= kLargestArea && resolution.area() <= kLargestArea,
        "the resolution {}×{} is too large: 4096×4096 is the largest", resolution.width, resolution.height);
  check(options.enabled || on_bucket_grid(resolution) == resolution,
        "the resolution {}×{} must have sides that are multiples of 16, for example {}×{}; or set enable_bucket = true",
        resolution.width, resolution.height, to_step(resolution.width), to_step(resolution.height));
}

}  // namespace

PixelSize on_bucket_grid(PixelSize size) { return {to_step(size.width), to_step(size.height)}; }

Buckets::Buckets(PixelSize resolution, Options options) : no_upscale_(options.enabled && options.no_upscale) {
  check_resolution(resolution, options);
  area_ = resolution.area();
  if (!options.enabled) {
    sizes_ = {resolution};
    return;
  }
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(area_)));
  for (int64_t w = to_step(side / 2); w < side + kBucketStep; w += kBucketStep) {
    const int64_t h = to_step(area_ / w);
    sizes_.push_back({w, h});
    sizes_.push_back({h, w});
  }
  std::sort(sizes_.begin(), sizes_.end());
  sizes_.erase(std::unique(sizes_.begin(), sizes_.end()), sizes_.end());
}

PixelSize Buckets::of(PixelSize image) const {
  if (no_upscale_ && image.area() <= area_) return on_bucket_grid(image);
  return nearest_aspect(sizes_, image);
}

PixelSize free_bucket(PixelSize image, PixelSize limit) {
  const int64_t area = limit.area();
  const int64_t middle = to_step(static_cast<int64_t>(std::sqrt(static_cast<double>(area) * aspect(image))));
  std::vector<PixelSize> sizes;
  for (int64_t w = middle - 2 * kBucketStep; w <= middle + 2 * kBucketStep; w += kBucketStep)
    if (w > 0 && to_step(area / w) > 0) sizes.push_back({w, to_step(area / w)});
  check(!sizes.empty(), "an image of {}×{} pixels does not fit into {}×{}: its sides are too different", image.width,
        image.height, limit.width, limit.height);
  return nearest_aspect(sizes, image);
}

Image fit_to_bucket(const Image& image, PixelSize bucket) {
  const PixelSize size{image.width, image.height};
  if (size == bucket) return to_rgb(image, AlphaRule::Drop);
  const auto ratio = [](int64_t to, int64_t from) { return static_cast<double>(to) / static_cast<double>(from); };
  const double scale = std::max(ratio(bucket.width, size.width), ratio(bucket.height, size.height));
  const int width = static_cast<int>(std::floor(image.width * scale + 0.5)),
            height = static_cast<int>(std::floor(image.height * scale + 0.5));
  // Pillow weights the colours of an image with transparency by it when it scales; OpenCV takes every channel alone.
  const Image scaled = scale > 1 ? to_rgb(resize(image, width, height), AlphaRule::Drop)
                                 : shrink_by_area(to_rgb(image, AlphaRule::Drop), width, height);
  const int left = (width - static_cast<int>(bucket.width)) / 2, top = (height - static_cast<int>(bucket.height)) / 2;
  return crop(scaled, left, top, static_cast<int>(bucket.width), static_cast<int>(bucket.height));
}

}  // namespace flux2
