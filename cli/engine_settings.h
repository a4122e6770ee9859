#pragma once

#include "cli/command.h"
#include "engine/engine.h"

namespace flux2 {

// The engine that --device, --threads, --profile and --quant ask for.
EngineOptions engine_options(Invocation& run);

}  // namespace flux2
