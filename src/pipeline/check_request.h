#pragma once

#include "pipeline/request.h"
#include "pipeline/session.h"

namespace flux2 {

// Throws InvalidArgument unless these models can run the request: every number is finite and in its range, every image and tensor
// that it holds has the shape that the others and the models need. text_to_image() calls this first, so no Request can make it
// crash, whoever built it. The ranges are those of the engine; what a person or a server may ask for is checked above
// (app/request_limits.h).
void check_request(const Request& request, const Models& models);

}  // namespace flux2
