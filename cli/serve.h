#pragma once

#include "cli/command.h"
#include "server/storage_options.h"

namespace flux2 {

// Shared by the commands that run jobs for others.

Settings job_defaults(const Invocation& run);
StorageOptions storage_options(const Invocation& run);

}  // namespace flux2
