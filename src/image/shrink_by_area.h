#pragma once

#include "image/image.h"

namespace flux2 {

// Every sample becomes the mean of the area that it covers. The bytes are those of OpenCV's INTER_AREA, which musubi-tuner uses
// to shrink training images, so caches of both programs agree. No side may become longer.
Image shrink_by_area(const Image& image, int width, int height);

}  // namespace flux2
