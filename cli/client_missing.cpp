// The client and the keys of the server in a build without SQLite.
#include "cli/client.h"
#include "cli/keys.h"

namespace flux2 {

namespace {

[[noreturn]] int refuse_without_sqlite() {
  throw Error(ErrorCode::Incompatible, "this program was built without SQLite, which its client and server need",
              "install the headers of SQLite (libsqlite3-dev on Debian and Ubuntu) and build it again");
}

const std::vector<Command>& no_actions() {
  static const std::vector<Command> none;
  return none;
}

}  // namespace

const std::vector<Command>& client_actions() { return no_actions(); }
std::vector<OptionGroup> client_options() { return version_options(); }
int run_client(Invocation&) { return refuse_without_sqlite(); }

const std::vector<Command>& keys_actions() { return no_actions(); }
std::vector<OptionGroup> keys_options() { return version_options(); }
int run_keys(Invocation&) { return refuse_without_sqlite(); }

}  // namespace flux2
