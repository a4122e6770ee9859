#pragma once

#include "net/http.h"

namespace flux2 {

// Sends a request and follows where its answers lead, ten times at most. The token and any header that carries a secret
// stay behind when scheme, host or port change. A redirect from https to plain http is refused.
HttpAnswer send_following(const HttpClient& client, HttpRequest request, const HttpSink& sink = {});

bool is_redirect(const HttpAnswer& answer);  // a 301, 302, 303, 307 or 308 that says where to

}  // namespace flux2
