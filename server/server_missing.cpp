// The server of a build without SQLite, in which it keeps its queue.
#include "base/error.h"
#include "server/server.h"
#include "server/worker_process.h"

namespace flux2 {

struct Server::Parts {};

namespace {

[[noreturn]] void refuse_without_sqlite() {
  throw Error(ErrorCode::Incompatible, "this program was built without SQLite, which its server needs",
              "install the headers of SQLite (libsqlite3-dev on Debian and Ubuntu) and build it again");
}

}  // namespace

bool server_available() { return false; }
bool server_knows_postgres() { return false; }

Server::Server(AppContext, Settings, ServerOptions) { refuse_without_sqlite(); }
Server::~Server() = default;
void Server::start() {}
std::string Server::url() const { return {}; }
void Server::stop() {}

struct WorkerProcess::Parts {};

WorkerProcess::WorkerProcess(AppContext, Settings, WorkerProcessOptions) { refuse_without_sqlite(); }
WorkerProcess::~WorkerProcess() = default;
void WorkerProcess::start() {}
void WorkerProcess::stop() {}

}  // namespace flux2
