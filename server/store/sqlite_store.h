#pragma once

#include <filesystem>
#include <memory>

#include "server/store/job_store.h"

namespace flux2 {

// The queue in an SQLite file, usually flux2.db of the data folder, which the model registry shares. Several processes on one
// machine may open it. Throws CannotWrite when the disk is full or another process holds the file for too long.
std::unique_ptr<JobStore> open_sqlite_store(const std::filesystem::path& path);

}  // namespace flux2
