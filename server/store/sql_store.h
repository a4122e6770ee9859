#pragma once

#include <chrono>
#include <filesystem>
#include <memory>

#include "server/store/job_store.h"
#include "server/store/sql.h"

namespace flux2 {

// The queue in a database. Several processes may share it. A worker that does not renew its claims loses them after `lease`.
std::unique_ptr<JobStore> open_job_store(std::shared_ptr<SqlDatabase> database,
                                         std::chrono::milliseconds lease = std::chrono::seconds(30));
// In an SQLite file, usually flux2.db of the data folder, which the model registry shares.
std::unique_ptr<JobStore> open_sqlite_store(const std::filesystem::path& path);

}  // namespace flux2
