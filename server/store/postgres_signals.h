#pragma once

#include <memory>

#include "server/store/postgres_pool.h"

namespace flux2 {

// Signals of other processes, by LISTEN on a connection of its own. A lost connection is opened again.
std::unique_ptr<SqlSignals> open_postgres_signals(std::shared_ptr<PostgresPool> pool);

}  // namespace flux2
