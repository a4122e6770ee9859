#include "net/http.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "net/hide_token.h"
#include "net/url.h"

namespace flux2 {

namespace {

bool same_name(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

std::optional<std::string> HttpAnswer::header(std::string_view name) const {
  for (const HttpHeader& h : headers)
    if (same_name(h.name, name)) return h.value;
  return std::nullopt;
}

HttpSettings http_settings(const std::function<const char*(const char*)>& environment) {
  const auto first = [&](std::initializer_list<const char*> names) {
    for (const char* name : names)
      if (const char* value = environment ? environment(name) : nullptr; value && *value) return std::string(value);
    return std::string();
  };
  HttpSettings s;
  s.https_proxy = first({"https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"});
  s.http_proxy = first({"http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"});
  s.no_proxy = first({"no_proxy", "NO_PROXY"});
  s.ca_file = first({"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"});
  s.ca_folder = first({"SSL_CERT_DIR"});
  return s;
}

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

namespace {

HttpAnswer follow(const HttpClient& client, HttpRequest request, const HttpSink& sink) {
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

}  // namespace

HttpAnswer send_following(const HttpClient& client, HttpRequest request, const HttpSink& sink) {
  const std::string token = request.token;
  return hiding_token(token, [&] {
    HttpAnswer answer = follow(client, std::move(request), sink);
    answer.failure = hide_token(std::move(answer.failure), token);  // it may name the host of a redirect
    return answer;
  });
}

std::optional<uint64_t> decimal(std::string_view text) {
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != text.npos) return std::nullopt;
  return std::stoull(std::string(text));
}

ContentRange content_range(const HttpAnswer& answer) {
  const std::string header = answer.header("Content-Range").value_or("");
  std::string_view text = header;
  if (!text.starts_with("bytes ")) return {};
  text.remove_prefix(6);
  const size_t slash = text.find('/');
  return {decimal(text.substr(0, text.find('-'))), slash == text.npos ? std::nullopt : decimal(text.substr(slash + 1))};
}

std::optional<uint64_t> whole_size(const HttpAnswer& answer) {
  return answer.status == 206 ? content_range(answer).total : decimal(answer.header("Content-Length").value_or(""));
}

std::string version_of(const HttpAnswer& answer) {
  const std::string etag = answer.header("ETag").value_or("");
  return etag.starts_with('"') ? etag : answer.header("Last-Modified").value_or("");
}

std::string bare_etag(std::string text) {
  if (text.starts_with("W/")) text.erase(0, 2);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return text;
}

}  // namespace flux2
