#include "app/registry_access.h"
#include "cli/models/models.h"

namespace flux2 {

int run_models_relate(Invocation& run) {
  check(run.positional.size() >= 2, "models relate needs the names or keys of two models or more");
  const bool remove = run.settings.flag("remove");
  Registry registry = open_registry(run);
  const ModelRecord one = record_named(registry, run.positional[0]);
  std::vector<ModelRecord> others;  // all must exist before the first is linked
  for (size_t i = 1; i < run.positional.size(); ++i) others.push_back(record_named(registry, run.positional[i]));
  for (const ModelRecord& other : others) {
    check(other.key != one.key, "{}: a model cannot be related to itself", other.name);
    const bool changed = remove ? registry.unrelate(one.key, other.key) : registry.relate(one.key, other.key);
    if (!changed) run.console.note(one.name + (remove ? " was not related to " : " is already related to ") + other.name);
  }
  const ModelRecord now = *registry.find(one.key);
  if (run.console.json()) run.console.result(pretty(to_json(now)));
  else run.console.result(now.name);
  return 0;
}

}  // namespace flux2
