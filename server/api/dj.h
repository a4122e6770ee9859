#pragma once

#include "server/api/api_context.h"
#include "server/http/exchange.h"
#include "server/http/router.h"

namespace flux2 {

// The small API of dj-flux2: /generate, /status, /result, /queue, /cancel and /models.
void add_dj_routes(Router& router, ApiContext& api);

// Its WebSocket /ws/{token}: sends the status whenever it changes, and ends with the job. The listener calls this after the
// handshake; `head` has captured the token. Throws HttpError 404 for an unknown one.
void follow_dj_job(ApiContext& api, const ServerRequest& head, const std::shared_ptr<EventStream::Channel>& channel);

}  // namespace flux2
