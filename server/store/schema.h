#pragma once

#include "server/store/sql.h"

namespace flux2 {

// The server's tables: in flux2.db beside those of the registry, or in PostgreSQL. Each area has its own version.
void migrate_jobs(SqlDatabase& database);    // jobs, job_images, events, settings
void migrate_studio(SqlDatabase& database);  // assets with tags, boards and projects
void migrate_access(SqlDatabase& database);  // api_keys, sessions

}  // namespace flux2
