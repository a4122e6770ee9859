#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "image/mask.h"
#include "pipeline/request.h"

namespace flux2 {

struct InpaintOptions {
  // Ours: works at full resolution on a region around the mask and changes only the masked pixels of the image. Diffusers: the
  // whole image, like Flux2KleinInpaintPipeline: at most 1024² pixels, a hard mask, kept pixels are not restored.
  enum class Mode { Ours, Diffusers } mode = Mode::Ours;
  int grow = 8, feather = 8;  // pixels
  // Auto: a region around the mask when that covers less than a quarter of the image.
  enum class Crop { Auto, Off, On } crop = Crop::Auto;
  int padding = 32;           // pixels around the mask in a cropped region
  int width = 0, height = 0;  // to work at, multiples of 16; 0: the region's own size
  bool align = true;          // the result is aligned with the kept area in position, scale and colour
};

// Pixels added around an image.
struct Margins {
  int left = 0, top = 0, right = 0, bottom = 0;
};
Margins parse_margins(std::string_view text);  // "l,t,r,b"

// Enlarges the image by repeating its border, and sets the mask to 255 in the new area, so that it is generated.
void extend(Image& canvas, Image& mask, const Margins& margins);

// One inpainting task: prepares the input of the pipeline, and puts its result back into the image.
class Inpaint {
 public:
  // canvas: RGB or RGBA; mask: of its size. A mask that is empty is InvalidArgument.
  Inpaint(std::shared_ptr<const Image> canvas, const Image& mask, const InpaintOptions& options);

  // Of the image to make; multiples of 16.
  int width() const { return width_; }
  int height() const { return height_; }
  const Box& region() const { return region_; }  // of the canvas; it may reach beyond its right and lower border
  const Image& mask() const { return mask_; }    // grown and feathered, of the canvas's size

  // The start image of the run; it is used as a reference, too.
  Canvas canvas(double strength) const;

  // The canvas with the generated image (width × height) in the masked area, aligned. Where the mask is 0, every byte is that of
  // the canvas. In mode Diffusers, the generated image itself.
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
