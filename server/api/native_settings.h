#pragma once

#include <string>

#include "server/api/api_context.h"
#include "server/api/settings_file.h"
#include "server/http/router.h"

namespace flux2 {

// GET and PATCH /api/v1/settings. Settings that take effect at once are those that `apply_setting` knows.
void add_settings_routes(Router& router, ApiContext& api, const SettingsFile& file);

// Changes a setting of the running server; a null value means the default. False: it needs a restart.
bool apply_setting(ApiContext& api, const std::string& key, const Json& value);

}  // namespace flux2
