#pragma once

#include <functional>

#include "server/api/api_context.h"
#include "server/http/router.h"
#include "server/jobs/worker.h"

namespace flux2 {

// Pictures may come in the body of these routes.
constexpr uint64_t kImageBody = uint64_t{64} << 20;

// The native family, /api/v1. `worker` is the one of this process; null in a process that only accepts requests.
void add_job_routes(Router& router, ApiContext& api);
void add_event_routes(Router& router, ApiContext& api);
void add_info_routes(Router& router, ApiContext& api, const Settings& defaults, Worker* worker);
void add_asset_routes(Router& router, ApiContext& api);
void add_prompt_routes(Router& router, ApiContext& api, const Settings& defaults);

// Reads the body as a JSON object. Throws HttpError 400 `invalid_json`, 415 for another content type.
Json json_body(const ServerRequest& request, const AppContext& app);

// "job_01J…" of the path → the job. Throws HttpError 404.
Job job_of(const ServerRequest& request, ApiContext& api);

// What a native request asks for; without "kind", what its images suggest.
std::string kind_of(const Json& request);

// Checks a native request, looks for its model and adapters, and submits it.
JobStore::Inserted submit_native(const Json& request, const ServerRequest& from, ApiContext& api);

// The same for an image that belongs to something of the studio: `link` is kept in the resolution of the request. `one_of` tells
// the jobs of one HTTP request apart: it becomes part of their idempotency keys.
JobStore::Inserted submit_for_studio(const Json& request, const std::string& kind, const Json& link, const ServerRequest& from,
                                     ApiContext& api, const std::string& one_of = {});

}  // namespace flux2
