// The server of a build without SQLite, in which it keeps its queue.
#include "base/error.h"
#include "server/server.h"

namespace flux2 {

struct Server::Parts {};

bool server_available() { return false; }

Server::Server(AppContext, Settings, ServerOptions) {
  throw Error(ErrorCode::Incompatible, "this program was built without SQLite, which its server needs",
              "install the headers of SQLite (libsqlite3-dev on Debian and Ubuntu) and build it again");
}
Server::~Server() = default;
void Server::start() {}
std::string Server::url() const { return {}; }
void Server::stop() {}

}  // namespace flux2
