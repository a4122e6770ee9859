#include "base/error.h"
#include "net/http.h"

// Built without libcurl: everything that needs no network works as usual.
namespace flux2 {

struct HttpClient::State {};

HttpClient::HttpClient(HttpSettings) {}
HttpClient::~HttpClient() = default;

bool HttpClient::available() { return false; }

HttpAnswer HttpClient::send(const HttpRequest& request, const HttpSink&) const {
  throw Error(ErrorCode::Network, "this build has no HTTP client, so " + request.url + " cannot be downloaded",
              "download the file with another program and give its path, or rebuild with libcurl");
}

}  // namespace flux2
