#pragma once

#include <functional>

#include "app/resolve.h"
#include "image/mask.h"

namespace flux2 {

// Reads the regions of a request, whose rectangles and masks are about an image of this size, and notes them in the record.
// `part`, if given, cuts out the part of such an image that is worked on. Throws InvalidArgument if a region has no area, or if
// something else in the request rules out regions.
void resolve_regions(const RequestSpec& spec, PictureSize size, InputImages& images, const Log& log, ResolvedRequest& resolved,
                     const std::function<Image(const Image& mask)>& part = {});

// Whether some region has references of its own.
bool has_region_references(const RequestSpec& spec);

// The settings of regions without the regions: for requests that do without them.
void remove_regions(RequestSpec& spec);

// The masks and references of the regions of a recorded image, found beside it (app/input_images.h).
void take_region_files(const GenerationRecord& record, const std::string& picture, RequestSpec& spec);

}  // namespace flux2
