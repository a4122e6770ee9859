#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

struct sockaddr;

namespace flux2 {

struct HttpHeader {
  std::string name, value;
};

struct HttpSettings {
  std::string user_agent = "flux2";
  double connect_timeout_s = 10;
  std::string http_proxy, https_proxy, no_proxy;  // empty: none
  std::string ca_file, ca_folder;                 // empty: those of the system
  // For URLs from untrusted sources: called with the resolved address of every connection before it is opened; false refuses the
  // connection (for instance is_public_address() of public_address.h). If it is set, no proxy is used. Empty: every address is
  // allowed.
  std::function<bool(const sockaddr*)> allows_address = {};
};

// HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY in either case; SSL_CERT_FILE, REQUESTS_CA_BUNDLE, SSL_CERT_DIR.
HttpSettings http_settings(const std::function<const char*(const char*)>& environment);

// Signs requests to stores that speak Amazon's S3 protocol (AWS Signature Version 4). The secret is never sent.
struct AwsSigner {
  std::string access_key, secret_key, session_token;  // the token belongs to keys that expire; empty: none
  std::string region, service = "s3";
};

struct HttpRequest {
  std::string method = "GET";  // GET, HEAD, POST, PUT or DELETE
  std::string url;
  std::vector<HttpHeader> headers = {};
  std::string body = {};                 // of a POST or PUT
  std::string token = {};                // sent as a bearer token over https, or over http to this machine; never otherwise
  const AwsSigner* signer = nullptr;     // if set, a PUT needs a content type, and the query must be sorted by name
  double idle_timeout_s = 10;            // the transfer fails after this time without data
  size_t max_body = 32 << 20;            // of an answer kept in memory
  std::function<bool()> cancelled = {};  // true: ends with Cancelled
};

struct HttpAnswer {
  int status = 0;   // 0: there was no answer
  std::string url;  // the URL that answered
  std::vector<HttpHeader> headers;
  std::string body;        // unless a sink received it
  std::string failure;     // why the transfer broke off; empty if it completed
  bool transient = false;  // the failure may be temporary, so trying again may help

  bool failed() const { return !failure.empty(); }
  bool ok() const { return !failed() && status >= 200 && status < 300; }
  std::optional<std::string> header(std::string_view name) const;
};

// Receives the body of a 2xx answer as it arrives. begin() sees the headers first; if it returns false, the body is not read and
// the connection is closed. Exceptions from either function propagate out of send().
struct HttpSink {
  std::function<bool(const HttpAnswer& head)> begin = {};
  std::function<void(std::span<const std::byte>)> data = {};  // empty: the body is kept in the answer
};

// Sends requests and keeps connections open between them. Any number of threads may send at the same time, each over a connection
// of its own. Redirects are not followed: see send_following().
class HttpClient {
 public:
  explicit HttpClient(HttpSettings settings = {});
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  ~HttpClient();

  static bool available();  // false: built without an HTTP library, and send() throws

  HttpAnswer send(const HttpRequest& request, const HttpSink& sink = {}) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Sends a request and follows redirects, at most ten. The token and other secret headers are dropped if scheme, host or port
// change. A redirect from https to plain http is an error. Neither errors nor `failure` contain the token.
HttpAnswer send_following(const HttpClient& client, HttpRequest request, const HttpSink& sink = {});

bool is_redirect(const HttpAnswer& answer);  // 301, 302, 303, 307 or 308 with a Location header

// A number of at most 18 digits and nothing else.
std::optional<uint64_t> decimal(std::string_view text);

// The contents of "bytes 5-9/10" or "bytes */10"; a total of "*" is unknown.
struct ContentRange {
  std::optional<uint64_t> begin, total;
};
ContentRange content_range(const HttpAnswer& answer);

// The size of the whole file: the total of a 206 answer, the length of any other answer.
std::optional<uint64_t> whole_size(const HttpAnswer& answer);

// What the server calls this version of a file, for the header If-Range: then it sends the part that is asked for only if the
// file is still the same, and otherwise the whole file. An ETag, or the date if there is none or a weak one, which several
// versions may share. Empty if neither was told.
std::string version_of(const HttpAnswer& answer);

// An ETag without its quotes and without the W/ of a weak one.
std::string bare_etag(std::string text);

}  // namespace flux2
