#pragma once

#include "app/context.h"
#include "app/settings.h"
#include "base/json.h"
#include "server/store/asset_store.h"

namespace flux2 {

// A checked request (job_request.h) as settings, with images as the paths of their files and adapters as the files that their
// names mean. Throws NotFound for an image or adapter that is gone.
SettingLayer settings_of_job(const Json& request, const AssetStore& assets, const AppContext& context);

}  // namespace flux2
