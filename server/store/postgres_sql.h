#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "server/store/sql.h"

namespace flux2 {

struct PostgresOptions {
  int connections = 8;                         // at most; one more waits for signals
  std::chrono::milliseconds patience{30'000};  // how long a call waits for a server that has gone away
};

bool postgres_available();  // whether this build has libpq

// A PostgreSQL database: "postgres://user@host:port/database". The password may come from the address, PGPASSWORD or the
// password file; no message contains it. Threads share a few connections. A connection that is lost is opened again, and its
// transaction repeated unless it was committed. Throws DatabaseAway if the server does not answer within the time given,
// InvalidArgument if it refuses us.
std::shared_ptr<SqlDatabase> open_postgres(const std::string& address, PostgresOptions options = {});

}  // namespace flux2
