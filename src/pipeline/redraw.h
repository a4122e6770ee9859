#pragma once

#include <vector>

#include "image/image.h"

namespace flux2 {

// Redrawing a large image in tiles of a size that the model handles well.

// The upper left corner of a tile.
struct TileCorner {
  int left = 0, top = 0;
};

// Tiles of one size that cover an image that is at least as large; neighbours share at least `overlap` pixels. Evenly spaced.
std::vector<TileCorner> tile_corners(int width, int height, int tile_width, int tile_height, int overlap);

// Puts tiles together. Where tiles overlap, one fades into the other over `overlap` pixels.
class TileBlender {
 public:
  TileBlender(int width, int height, int overlap);

  void add(const Image& tile, const TileCorner& at);  // RGB
  Image finish() const;                               // all pixels are covered

 private:
  int width_, height_, overlap_;
  std::vector<float> sum_, weight_;
};

// The image with repeated pixels at the right and lower edge, at least as large as this.
Image padded_to(const Image& rgb, int width, int height);

// The details of one image over the colours of another of the same size: what a blur of `radius` pixels leaves comes from
// `colours`, the rest from `details`. Flat areas of tiles that were drawn separately have the same colour afterwards.
Image with_colours_of(const Image& details, const Image& colours, int radius);

}  // namespace flux2
