#pragma once

#include "server/api/api_context.h"
#include "server/http/router.h"

namespace flux2 {

// The OpenAI images API: /v1/models, /v1/images/generations, /edits, /variations and the files that answers refer to.
void add_openai_routes(Router& router, ApiContext& api);

}  // namespace flux2
