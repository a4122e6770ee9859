// The listener of a build without Boost.
#include "base/error.h"
#include "server/http/listener.h"

namespace flux2 {

class HttpListener::Impl {};

bool HttpListener::available() { return false; }

HttpListener::HttpListener(ListenOptions, Admit, Handle) {}
HttpListener::~HttpListener() = default;

void HttpListener::on_websocket(Accept) {}

void HttpListener::start() {
  throw Error(ErrorCode::Incompatible, "this program was built without Boost, which its HTTP server needs",
              "install the headers of Boost 1.81 or later (libboost1.81-dev on Debian 12, libboost-dev on Ubuntu 24.04) and "
              "build it again");
}

int HttpListener::port() const { return 0; }
std::string HttpListener::url() const { return {}; }
void HttpListener::stop(std::chrono::milliseconds) {}
HttpListener::Counts HttpListener::counts() const { return {}; }

}  // namespace flux2
