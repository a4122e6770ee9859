#pragma once

#include "app/context.h"
#include "app/resolve.h"
#include "hub/model_files.h"

namespace flux2 {

// Adapters say in their metadata how reference images were treated when they were trained (ss_flux2_references). If one was
// trained with references at time 0, the request treats them so too. If one was trained as klein-9b-kv is, and the request does
// not treat references so, a warning says it.
void follow_adapters(ResolvedRequest& resolved, const ModelFiles& model, const Log& log);

}  // namespace flux2
