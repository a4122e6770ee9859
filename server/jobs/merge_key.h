#pragma once

#include <string>

#include "base/json.h"

namespace flux2 {

// Equal for checked requests (job_request.h) that may run as one batch: they differ in prompts, seeds and what is about the job
// alone. Empty if a request cannot share a batch.
std::string merge_key_of(const Json& request);

}  // namespace flux2
