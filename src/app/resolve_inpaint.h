#pragma once

#include "app/resolve.h"

namespace flux2 {

// The two parts of resolve(), which call each other. Generate: the request as it is.
ResolvedRequest resolve_generate(const RequestSpec& spec, const ModelFiles& model, const Log& log, InputImages& images);

// Inpaint: the first image is the canvas, and the request describes the region that changes.
ResolvedRequest resolve_inpaint(const RequestSpec& spec, const ModelFiles& model, const Log& log, InputImages& images);

}  // namespace flux2
