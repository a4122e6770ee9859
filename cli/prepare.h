#pragma once

#include <vector>

#include "cli/command.h"
#include "cli/model_choice.h"
#include "cli/request.h"
#include "hub/model_files.h"

namespace flux2 {

// What generate, edit, inpaint and plan were asked for: a model whose files were found, and every request with its defaults
// resolved.
struct PreparedRun {
  ModelFiles model;
  std::vector<ResolvedRequest> requests;
};

using Resolver = ResolvedRequest (*)(const Settings&, const ModelFiles&, const std::string& prompt, const Log&, PictureShelf*);

PreparedRun prepare_run(Invocation& run, FoundModels* found = nullptr, Resolver resolve = resolve_request);

// Does what was prepared, or prints its plan with --dry-run. The program's exit status.
int run_prepared(Invocation& run, PreparedRun prepared);

}  // namespace flux2
