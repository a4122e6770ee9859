#include "server/http/access.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <span>

#include "base/base64.h"
#include "base/error.h"
#include "base/sha256.h"
#include "base/text.h"
#include "server/http/errors.h"
#include "server/http/multipart_head.h"

namespace flux2 {
namespace {

constexpr int64_t kSessionSeconds = 30 * 24 * 3600;
constexpr size_t kWrongKeys = 5;
constexpr int64_t kBlockSeconds = 60;
constexpr size_t kMostAddresses = 10000;
constexpr std::string_view kCookie = "flux2";

std::string hash_of(std::string_view text) { return sha256(std::as_bytes(std::span(text.data(), text.size()))); }

bool equal_in_constant_time(const std::string& a, const std::string& b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string random_token() {
  std::array<std::byte, 32> bytes{};
  require(RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size())) == 1, "no random bytes");
  std::string text = base64_encode(bytes);
  std::erase(text, '=');
  std::ranges::replace(text, '+', '-');
  std::ranges::replace(text, '/', '_');
  return text;
}

std::string cookie_value(std::string_view header) {
  while (!header.empty()) {
    const size_t end = std::min(header.find(';'), header.size());
    const std::string_view pair = trimmed(header.substr(0, end));
    header.remove_prefix(std::min(end + 1, header.size()));
    if (pair.starts_with(kCookie) && pair.size() > kCookie.size() && pair[kCookie.size()] == '=')
      return std::string(pair.substr(kCookie.size() + 1));
  }
  return {};
}

// "Bearer abc" gives "abc" for the scheme "bearer".
std::optional<std::string_view> credentials(std::string_view header, std::string_view scheme) {
  if (header.size() <= scheme.size() || header[scheme.size()] != ' ' || lower_case(header.substr(0, scheme.size())) != scheme)
    return std::nullopt;
  return trimmed(header.substr(scheme.size()));
}

// The name of a Host header: without port, in lower case. "[::1]:80" gives "[::1]".
std::string host_name(std::string_view host) {
  if (host.starts_with('[')) return lower_case(host.substr(0, host.find(']') + 1));
  return lower_case(host.substr(0, host.find(':')));
}

bool is_websocket(const ServerRequest& head) { return lower_case(head.header("upgrade")).find("websocket") != std::string::npos; }

bool only_reads(const ServerRequest& head) { return (head.method == "GET" || head.method == "HEAD") && !is_websocket(head); }

// Browsers cannot set headers on event streams and WebSockets.
bool may_have_key_in_address(const ServerRequest& head) {
  return head.method == "GET" && (head.path.ends_with("/events") || is_websocket(head) ||
                                  head.header("accept").find("text/event-stream") != std::string_view::npos);
}

std::string_view authority_of(std::string_view origin) {
  const size_t slashes = origin.find("://");
  return slashes == origin.npos ? std::string_view() : origin.substr(slashes + 3);
}

}  // namespace

AccessKey hashed_key(std::string_view key, Scope scope, std::string name) {
  return {.sha256 = hash_of(key), .scope = scope, .name = std::move(name)};
}

void MemorySessions::add(const std::string& hash, const std::string& key, Scope scope, int64_t created) {
  const std::lock_guard lock(mutex_);
  std::erase_if(sessions_, [&](const auto& entry) { return entry.second.created < created - kSessionSeconds; });
  sessions_[hash] = {scope, key, created};
}

std::optional<Sessions::Found> MemorySessions::find(const std::string& hash, int64_t not_before) {
  const std::lock_guard lock(mutex_);
  const auto at = sessions_.find(hash);
  if (at == sessions_.end() || at->second.created < not_before) return std::nullopt;
  return Found{at->second.scope, at->second.key};
}

void MemorySessions::remove(const std::string& hash) {
  const std::lock_guard lock(mutex_);
  sessions_.erase(hash);
}

Access::Access(AccessOptions options, Sessions& sessions, Clock clock)
    : options_(std::move(options)), sessions_(sessions), clock_(std::move(clock)) {}

void Access::set_more_keys(std::vector<AccessKey> keys) {
  const std::lock_guard lock(mutex_);
  more_keys_ = std::move(keys);
}

bool Access::needs_key() const {
  const std::lock_guard lock(mutex_);
  return !options_.keys.empty() || !options_.users.empty() || !more_keys_.empty();
}

Scope Access::check(const ServerRequest& head, Scope needed, Caller* caller) {
  check_host(head);
  const std::string_view authorization = head.header("authorization");
  std::optional<AccessKey> found;
  if (!needs_key()) {
    check_origin(head);
    return Scope::Admin;
  }
  if (needed == Scope::None) {
    if (caller) caller->scope = Scope::None;
    return Scope::None;
  }
  if (const auto bearer = credentials(authorization, "bearer")) {
    found = known_key(*bearer, head.remote_address);
  } else if (const auto basic = credentials(authorization, "basic"); basic && family_of(head.path) == Family::A1111) {
    found = key_of_basic(*basic, head.remote_address);
  } else if (const auto key = head.argument("key"); key && may_have_key_in_address(head)) {
    check_origin(head);
    found = known_key(*key, head.remote_address);
  } else if ((found = key_of_session(head))) {
    check_origin(head);
    if (!only_reads(head) && !is_websocket(head) && head.header("x-flux2") != "1")
      throw HttpError(403, "missing_header",
                      "A request that changes something and signs in by cookie needs the header X-Flux2: 1.");
  }
  if (!found) {
    HttpError error(401, "invalid_api_key", "This server needs a key. Send it as \"Authorization: Bearer <key>\".");
    error.headers.emplace_back("www-authenticate", family_of(head.path) == Family::A1111 ? "Basic realm=\"flux2\"" : "Bearer");
    throw error;
  }
  if (found->scope < needed) throw HttpError(403, "forbidden", "The key does not allow this request.");
  if (caller)
    *caller = {
        .key = found->sha256, .name = found->name, .limits = found->limits.or_else(options_.limits), .scope = found->scope};
  return found->scope;
}

// A page of a foreign name that resolves to this machine would otherwise count as our own page.
void Access::check_host(const ServerRequest& head) const {
  if (!options_.loopback || head.remote_address.empty()) return;
  const std::string name = host_name(head.header("host"));
  if (name == "localhost" || name == "127.0.0.1" || name == "[::1]") return;
  for (const std::string& allowed : options_.host_names)
    if (lower_case(allowed) == name) return;
  HttpError error(421, "misdirected_request", fmt::format("This server does not answer for the host \"{}\".", printable(name)));
  error.hint = "add it to the host names of the server if it is yours";
  throw error;
}

// Browsers send Origin with every request of another site that could change something.
void Access::check_origin(const ServerRequest& head) const {
  const std::string_view origin = head.header("origin");
  if (only_reads(head) || origin.empty() || is_allowed_origin(origin)) return;
  if (lower_case(authority_of(origin)) == lower_case(head.header("host"))) return;
  throw HttpError(403, "foreign_origin", "Pages of other sites may not use this server.");
}

bool Access::is_allowed_origin(std::string_view origin) const {
  return std::ranges::any_of(options_.cors_origins, [&](const std::string& allowed) {
    return allowed == "*" || lower_case(allowed) == lower_case(origin);
  });
}

std::optional<AccessKey> Access::key_of_session(const ServerRequest& head) {
  const std::string cookie = cookie_value(head.header("cookie"));
  if (cookie.empty()) return std::nullopt;
  const auto session = sessions_.find(hash_of(cookie), clock_() - kSessionSeconds);
  if (!session) return std::nullopt;
  auto key = find_key(session->key);
  if (!key) return std::nullopt;  // it was taken away, or none was needed at the sign-in
  key->scope = std::min(key->scope, session->scope);
  return key;
}

// Every key is compared, whether an earlier one fits or not, so the time says nothing. Of equal keys the one that may do most
// counts.
std::optional<AccessKey> Access::find_key(const std::string& hash) const {
  std::optional<AccessKey> found;
  const auto compare = [&](const std::vector<AccessKey>& keys) {
    for (const AccessKey& known : keys)
      if (equal_in_constant_time(known.sha256, hash) && (!found || found->scope < known.scope)) found = known;
  };
  compare(options_.keys);
  const std::lock_guard lock(mutex_);
  compare(more_keys_);
  return found;
}

AccessKey Access::known_key(std::string_view key, const std::string& address) {
  check_blocked(address);
  auto found = find_key(hash_of(key));
  if (!found) refuse_key(address);
  return std::move(*found);
}

AccessKey Access::key_of_basic(std::string_view text, const std::string& address) {
  check_blocked(address);
  std::string pair;
  try {
    const std::vector<std::byte> bytes = base64_decode(text);
    pair.assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  } catch (const Error&) {
    refuse_key(address);
  }
  const size_t colon = pair.find(':');
  if (colon == pair.npos) refuse_key(address);
  const std::string user = pair.substr(0, colon), hash = hash_of(std::string_view(pair).substr(colon + 1));
  for (const auto& [name, password] : options_.users)
    if (equal_in_constant_time(password.sha256, hash) && name == user) return password;
  return known_key(std::string_view(pair).substr(colon + 1), address);
}

void Access::check_blocked(const std::string& address) {
  const std::lock_guard lock(mutex_);
  const auto at = failures_.find(address);
  const int64_t now = clock_();
  if (at == failures_.end() || at->second.blocked_until <= now) return;
  HttpError error(429, "too_many_wrong_keys", "Too many wrong keys came from this address. Wait a minute.");
  error.headers.emplace_back("retry-after", std::to_string(at->second.blocked_until - now));
  throw error;
}

void Access::refuse_key(const std::string& address) {
  {
    const std::lock_guard lock(mutex_);
    const int64_t now = clock_();
    const int64_t old = now - kBlockSeconds;
    if (failures_.size() >= kMostAddresses)
      std::erase_if(failures_, [&](const auto& entry) {
        return entry.second.blocked_until <= now && (entry.second.times.empty() || entry.second.times.back() <= old);
      });
    if (failures_.size() >= kMostAddresses) failures_.erase(failures_.begin());
    Failures& failures = failures_[address];
    while (!failures.times.empty() && failures.times.front() <= old) failures.times.pop_front();
    failures.times.push_back(now);
    if (failures.times.size() >= kWrongKeys) {
      failures.blocked_until = now + kBlockSeconds;
      failures.times.clear();
    }
  }
  HttpError error(401, "invalid_api_key", "The key is wrong.");
  error.headers.emplace_back("www-authenticate", "Bearer");
  throw error;
}

Headers Access::cors_headers(const ServerRequest& head) const {
  const std::string_view origin = head.header("origin");
  if (origin.empty() || !is_allowed_origin(origin)) return {};
  return {{"access-control-allow-origin", std::string(origin)},
          {"access-control-expose-headers", "x-request-id, retry-after, etag, location"},
          {"vary", "Origin"}};
}

std::optional<HttpResponse> Access::preflight(const ServerRequest& head) const {
  if (head.method != "OPTIONS" || head.header("access-control-request-method").empty()) return std::nullopt;
  Headers headers = cors_headers(head);
  if (headers.empty()) return std::nullopt;
  HttpResponse response = HttpResponse::empty(204);
  response.headers = {{"access-control-allow-methods", "GET, HEAD, POST, PUT, PATCH, DELETE"},
                      {"access-control-allow-headers",
                       "authorization, content-type, idempotency-key, last-event-id, if-none-match, range, x-flux2"},
                      {"access-control-max-age", "600"}};
  response.headers.insert(response.headers.end(), headers.begin(), headers.end());
  return response;
}

HttpResponse Access::sign_in(const ServerRequest& request, std::string_view key) {
  check_host(request);
  check_origin(request);
  HttpResponse response = HttpResponse::empty(204);
  if (!needs_key()) return response;  // a session would outlive this and open a server that has got keys
  const AccessKey found = known_key(key, request.remote_address);
  const std::string token = random_token();
  sessions_.add(hash_of(token), found.sha256, found.scope, clock_());
  response.headers.emplace_back("set-cookie", fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age={}{}", kCookie,
                                                          token, kSessionSeconds, options_.tls ? "; Secure" : ""));
  response.headers.emplace_back("cache-control", "no-store");
  return response;
}

HttpResponse Access::sign_out(const ServerRequest& request) {
  const std::string cookie = cookie_value(request.header("cookie"));
  if (!cookie.empty()) sessions_.remove(hash_of(cookie));
  HttpResponse response = HttpResponse::empty(204);
  response.headers.emplace_back(
      "set-cookie", fmt::format("{}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0{}", kCookie, options_.tls ? "; Secure" : ""));
  return response;
}

}  // namespace flux2
