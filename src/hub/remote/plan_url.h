#pragma once

#include "hub/remote/fetch.h"

namespace flux2 {

// The plan for one file by its address, into options.local_dir under the name the server or the address gives it.
FetchPlan plan_url(const Source& source, const FetchOptions& options, const Log& log);

}  // namespace flux2
