#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "image/image.h"

namespace flux2 {

// Width and height in pixels.
struct PixelSize {
  int64_t width = 0, height = 0;

  int64_t area() const { return width * height; }
  auto operator<=>(const PixelSize&) const = default;
};

constexpr int64_t kBucketStep = 16;                     // sides are multiples of it
constexpr int64_t kSmallestSide = 2 * kBucketStep;      // of a resolution: buckets go down to half of it
constexpr int64_t kLargestArea = int64_t{4096} * 4096;  // of a resolution

// The sizes that images of a dataset are brought to. With buckets they have nearly the same area in several aspect ratios,
// without there is one size. The rules are those of musubi-tuner.
class Buckets {
 public:
  struct Options {
    bool enabled = true;      // false: `resolution` alone, whose sides must be multiples of 16
    bool no_upscale = false;  // an image with no more pixels than the resolution keeps its size, rounded down to multiples of 16
  };
  Buckets(PixelSize resolution, Options options);

  const std::vector<PixelSize>& sizes() const { return sizes_; }  // sorted
  PixelSize of(PixelSize image) const;                            // a side is 0 if the image is too small to keep its size

 private:
  int64_t area_ = 0;
  bool no_upscale_;
  std::vector<PixelSize> sizes_;
};

// The size nearest to the aspect ratio of an image whose area is about that of the limit.
PixelSize free_bucket(PixelSize image, PixelSize limit);

// The size with its sides rounded down to multiples of 16.
PixelSize on_bucket_grid(PixelSize size);

// The image as RGB, scaled until it covers this size and cut to its middle: by area when it shrinks, Lanczos when it grows, as
// musubi-tuner does. Transparency is dropped.
Image fit_to_bucket(const Image& image, PixelSize bucket);

}  // namespace flux2
