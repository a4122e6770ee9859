#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "hub/registry/model_record.h"

namespace flux2 {

// Installs one source with the options of this run and shows the progress.
std::vector<ModelRecord> install_from(Invocation& run, const std::string& source);

}  // namespace flux2
