#include "net/redirect.h"

#include "base/error.h"
#include "base/text.h"
#include "net/url.h"

namespace flux2 {

namespace {

constexpr int kMaxRedirects = 10;

}  // namespace

bool is_redirect(const HttpAnswer& answer) {
  switch (answer.status) {
    case 301:
    case 302:
    case 303:
    case 307:
    case 308: return !answer.failed() && answer.header("Location").has_value();
    default: return false;
  }
}

HttpAnswer send_following(const HttpClient& client, HttpRequest request, const HttpSink& sink) {
  for (int hops = 0;; ++hops) {
    HttpAnswer answer = client.send(request, sink);
    if (!is_redirect(answer)) return answer;
    if (hops == kMaxRedirects) fail(ErrorCode::Network, "{} redirects more than {} times", printable(request.url), kMaxRedirects);
    const std::string next = resolve_location(request.url, *answer.header("Location"));
    if (parse_url(request.url).secure() && !parse_url(next).secure())
      fail(ErrorCode::Network, "{} redirects to plain http, which is not followed", printable(request.url));
    if (!same_origin(request.url, next)) {
      request.token.clear();
      std::erase_if(request.headers, [](const HttpHeader& h) { return h.name == "Authorization" || h.name == "Cookie"; });
    }
    if (answer.status == 303) request.method = request.method == "HEAD" ? "HEAD" : "GET";
    request.url = next;
  }
}

}  // namespace flux2
