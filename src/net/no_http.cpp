#include "base/error.h"
#include "net/http.h"

// Built without libcurl: everything that needs no network works as ever.
namespace flux2 {

struct HttpClient::State {};

HttpClient::HttpClient(HttpSettings) {}
HttpClient::~HttpClient() = default;

bool HttpClient::available() { return false; }

HttpAnswer HttpClient::send(const HttpRequest& request, const HttpSink&) const {
  throw Error(ErrorCode::Network, "this build has no HTTP client, so " + request.url + " cannot be asked for",
              "fetch the file with another program and name it by its path, or build with libcurl");
}

}  // namespace flux2
