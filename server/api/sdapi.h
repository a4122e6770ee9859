#pragma once

#include "server/api/api_context.h"
#include "server/http/router.h"

namespace flux2 {

// The API of the Stable Diffusion web UI: /sdapi/v1.
void add_sdapi_routes(Router& router, ApiContext& api);

}  // namespace flux2
