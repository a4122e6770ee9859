#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "image/mask.h"
#include "pipeline/request.h"

namespace flux2 {

struct InpaintOptions {
  // Ours: works at full resolution on a region around the mask and puts only what the mask shows into the picture.
  // Diffusers: the whole picture as Flux2KleinInpaintPipeline makes it: at most 1024² pixels, a hard mask, no putting back.
  enum class Mode { Ours, Diffusers } mode = Mode::Ours;
  int grow = 8, feather = 8;  // pixels
  // Auto: a region around the mask when that covers less than a quarter of the picture.
  enum class Crop { Auto, Off, On } crop = Crop::Auto;
  int padding = 32;           // pixels around the mask in a cropped region
  int width = 0, height = 0;  // to work at, multiples of 16; 0: the region's own size
  bool align = true;          // what was made is measured against what is kept and brought back over it
};

// Pixels added around a picture.
struct Margins {
  int left = 0, top = 0, right = 0, bottom = 0;
};
Margins parse_margins(std::string_view text);  // "l,t,r,b"

// The picture with its border drawn out and the mask with 255 there: what lies outside is to be made.
void extend(Image& canvas, Image& mask, const Margins& margins);

// One inpainting: what the pipeline is to make, and the whole picture from what it made.
class Inpaint {
 public:
  // canvas: RGB or RGBA; mask: of its size. A mask that is empty is InvalidArgument.
  Inpaint(std::shared_ptr<const Image> canvas, const Image& mask, const InpaintOptions& options);

  // Of the picture to make; multiples of 16.
  int width() const { return width_; }
  int height() const { return height_; }
  const Box& region() const { return region_; }  // of the canvas; it may reach beyond its right and lower border
  const Image& mask() const { return mask_; }    // grown and feathered, of the canvas's size

  // What the run begins with; the picture of it serves as a reference too.
  Canvas canvas(double strength) const;

  // The canvas with the picture that was made (width × height), aligned, where the mask says so. Where the mask is 0 every byte
  // is the canvas's. In mode Diffusers the picture itself.
  Image finish(const Image& made) const;

 private:
  void plan_region();
  void plan_whole(const Image& mask);

  std::shared_ptr<const Image> canvas_;
  InpaintOptions options_;
  Image mask_;
  Box region_;
  int width_ = 0, height_ = 0;
  std::shared_ptr<const Planes> picture_;
  std::vector<float> token_mask_;
};

}  // namespace flux2
