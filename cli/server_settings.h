#pragma once

#include "cli/command.h"
#include "server/api/settings_file.h"

namespace flux2 {

// The keys of the configuration that a server shows to its clients and lets them change. The invocation must outlive it.
SettingsFile server_settings(const Invocation& run);

}  // namespace flux2
