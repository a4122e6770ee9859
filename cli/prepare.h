#pragma once

#include <vector>

#include "cli/command.h"
#include "cli/model_choice.h"
#include "cli/request.h"
#include "hub/model_files.h"

namespace flux2 {

// What generate and plan were asked for: a model whose files were found, and every request with its defaults resolved.
struct PreparedRun {
  ModelFiles model;
  std::vector<ResolvedRequest> requests;
};

PreparedRun prepare_run(Invocation& run, FoundModels* found = nullptr);

}  // namespace flux2
