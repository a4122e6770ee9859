#include "hub/registry/relocate.h"

#include "app/registry_access.h"
#include "cli/models/models.h"

namespace flux2 {

int run_models_relocate(Invocation& run) {
  check(run.positional.size() == 2, "models relocate needs the name or key of a model and its new path");
  Registry registry = open_registry(run);
  const ModelRecord before = record_named(registry, run.positional[0]);
  registry.update(relocated(before, run.positional[1], registry.data_folder(), run.console.log()));
  const ModelRecord now = *registry.find(before.key);
  if (run.console.json()) run.console.result(pretty(to_json(now)));
  else run.console.result(now.path.string());
  return 0;
}

}  // namespace flux2
