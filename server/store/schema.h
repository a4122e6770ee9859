#pragma once

#include "hub/registry/database.h"

namespace flux2 {

// The server's tables in flux2.db, beside those of the registry. Each area has its own version.
void migrate_jobs(const Database& database);    // jobs, job_images, events, settings
void migrate_studio(const Database& database);  // assets
void migrate_access(const Database& database);  // api_keys, sessions

}  // namespace flux2
