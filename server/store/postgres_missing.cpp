#include "server/store/postgres_sql.h"

namespace flux2 {

bool postgres_available() { return false; }

std::shared_ptr<SqlDatabase> open_postgres(const std::string&, PostgresOptions) {
  throw Error(ErrorCode::InvalidArgument, "this build cannot use PostgreSQL, because it was made without libpq",
              "install the package libpq-dev and build again, or leave the database out to use SQLite");
}

}  // namespace flux2
