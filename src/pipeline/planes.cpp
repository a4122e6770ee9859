#include "pipeline/planes.h"

#include "image/pixels.h"

namespace flux2 {

std::shared_ptr<const Planes> planes_of(const Image& rgb) {
  return std::make_shared<const Planes>(Planes{rgb.width, rgb.height, from_rgb8(rgb)});
}

}  // namespace flux2
