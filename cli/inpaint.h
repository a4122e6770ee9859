#pragma once

#include "cli/request.h"

namespace flux2 {

// resolve_request for `flux2 inpaint`: the first picture is the canvas, the others are references; the mask comes from --mask,
// --mask-box, --extend or the canvas's transparency.
ResolvedRequest resolve_inpaint(const Settings& settings, const ModelFiles& model, const std::string& prompt, const Log& log,
                                PictureShelf* shelf);

}  // namespace flux2
