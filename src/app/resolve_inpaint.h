#pragma once

#include "app/resolve.h"

namespace flux2 {

// The two ways of resolve(), for each other. Generate: the request as it stands.
ResolvedRequest resolve_generate(const RequestSpec& spec, const ModelFiles& model, const Log& log, InputImages& images);

// Inpaint: the first image is the canvas, and the request is about the region that changes.
ResolvedRequest resolve_inpaint(const RequestSpec& spec, const ModelFiles& model, const Log& log, InputImages& images);

}  // namespace flux2
