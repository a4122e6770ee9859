#pragma once

#include <map>
#include <string>

#include "cli/command.h"
#include "hub/model_files.h"

namespace flux2 {

// The query that the model options, the environment and the configuration make.
ModelQuery model_query(const Invocation& run);

// Models that were found, so that many requests look for each only once.
using FoundModels = std::map<std::string, ModelFiles>;

// Finds the model; when it is the bundled one, says what that can do.
ModelFiles choose_model(Invocation& run, bool need_text_encoder = true, FoundModels* found = nullptr);

}  // namespace flux2
