#pragma once

#include "app/resolve.h"
#include "image/watermark.h"

namespace flux2 {

// The two parts of resolve(), which call each other. Generate: the request as it is.
ResolvedRequest resolve_generate(const RequestSpec& spec, const ModelFiles& model, const Log& log, InputImages& images);

// The watermark that images of this size get; empty if none is asked for, or if they are too small for one, with a warning.
WatermarkBits chosen_watermark(const RequestSpec& spec, int width, int height, const Log& log);

// The mask of an inpainting request for its image, before it is grown and feathered: 255 is regenerated. `canvas` is the image,
// extended if the request says so.
struct CanvasMask {
  std::shared_ptr<const Image> canvas;
  Image mask;
};
CanvasMask mask_of_request(const RequestSpec& spec, const Log& log, InputImages& images);

// Inpaint: the first image is the canvas, and the request describes the region that changes.
ResolvedRequest resolve_inpaint(const RequestSpec& spec, const ModelFiles& model, const Log& log, InputImages& images);

}  // namespace flux2
