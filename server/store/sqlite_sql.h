#pragma once

#include <filesystem>
#include <memory>

#include "server/store/sql.h"

namespace flux2 {

// An SQLite file, created when missing. Its threads take turns; other processes may use the file at the same time. Throws
// CannotWrite when the disk is full or another process holds the file for too long.
std::shared_ptr<SqlDatabase> open_sqlite(const std::filesystem::path& path);

}  // namespace flux2
