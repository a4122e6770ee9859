#pragma once

#include "app/mask_service.h"
#include "base/json.h"
#include "server/api/api_context.h"

namespace flux2 {

// Gives a checked request that asks for a mask by words or points its mask, which is stored as an asset. The mask service is
// asked now, so that a missing one is reported at once: HttpError 424 `mask_service_unavailable`.
void add_service_mask(Json& checked, ApiContext& api);

}  // namespace flux2
