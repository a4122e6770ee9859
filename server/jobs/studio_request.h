#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "server/http/errors.h"
#include "server/store/asset_store.h"

// What the studio adds to a job request: the defaults and the style of its project. A stored request has the final prompt and
// the final references, which a worker uses; the member `resolution` keeps what was sent and how it was changed.
namespace flux2 {

constexpr const char* kResolution = "resolution";

// Fills a request in, before its members are checked. What is wrong is added to `problems`.
void resolve_in_studio(Json& request, AssetStore& assets, std::vector<HttpError::FieldProblem>& problems);

std::string project_in_request(const Json& request);  // its id in the store; "" is the default project

// For clients: a stored request as it was sent, and the report about what was changed.
Json request_as_sent(const Json& request);
Json resolution_report(const Json& request);

}  // namespace flux2
