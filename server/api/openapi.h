#pragma once

#include "base/json.h"
#include "server/http/router.h"

namespace flux2 {

// The OpenAPI 3.1 document of the native and the OpenAI family, made from the table of routes and the table of request fields.
Json openapi_document(const Router& router);

void add_openapi_routes(Router& router);  // after all others: the document lists them

}  // namespace flux2
