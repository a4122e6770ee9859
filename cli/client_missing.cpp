// The client of a build without SQLite: it shares its code with the server.
#include "cli/client.h"

namespace flux2 {

const std::vector<Command>& client_actions() {
  static const std::vector<Command> none;
  return none;
}

std::vector<OptionGroup> client_options() { return version_options(); }

int run_client(Invocation&) {
  throw Error(ErrorCode::Incompatible, "this program was built without SQLite, which its client and server need",
              "install the headers of SQLite (libsqlite3-dev on Debian and Ubuntu) and build it again");
}

}  // namespace flux2
