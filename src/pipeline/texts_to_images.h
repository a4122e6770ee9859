#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "pipeline/text_to_image.h"

namespace flux2 {

// Whether the images of two requests can be computed as one batch: they differ in prompts, seeds and the number of images alone,
// and have no references or canvas.
bool can_run_together(const Request& a, const Request& b);

// text_to_image() for several such requests at once. `deliver` also receives which request an image belongs to. In profile exact,
// every image is the same as if its request had run alone.
PhaseTimes texts_to_images(Session& session, std::span<const Request> requests, const Progress& progress,
                           const std::function<void(size_t request, Picture picture)>& deliver);

}  // namespace flux2
