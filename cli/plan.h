#pragma once

#include "cli/prepare.h"

namespace flux2 {

// --dry-run: the resolved requests as JSON, each with its forecast.
int print_plan(Invocation& run, const PreparedRun& prepared);

}  // namespace flux2
