#include <fmt/format.h>

#include <optional>
#include <utility>

#include "app/context.h"
#include "app/registry_access.h"
#include "base/text.h"
#include "cli/models/models.h"
#include "cli/table.h"
#include "cli/user_input.h"
#include "hub/registry/remove_files.h"

namespace flux2 {

namespace {

std::string question(const ModelRecord& r, bool files, const Removal& removal) {
  if (!files) return fmt::format("Unregister {}? Its files are kept.", r.name);
  return fmt::format("Remove {} and delete {} ({})?", r.name, files_text(removal.files.size()), byte_text(removal.bytes));
}

}  // namespace

int run_models_remove(Invocation& run) {
  check(!run.positional.empty(), "models remove needs the name or key of a model");
  const bool files = run.settings.flag("files");
  Registry registry = open_registry(run);
  std::vector<ModelRecord> chosen;  // all must exist before the first goes
  for (const std::string& name : run.positional) {
    try {
      chosen.push_back(record_named(registry, name));
    } catch (const Error& e) {
      // Of a record that cannot be read, only the key is known, and no files.
      const auto key = e.code() == ErrorCode::BadFile && !files ? registry.key_of(name) : std::nullopt;
      if (!key) throw;
      ModelRecord unreadable;
      unreadable.key = *key;
      unreadable.name = name;
      chosen.push_back(std::move(unreadable));
    }
  }
  Json json = Json::array();
  int status = 0;
  for (const ModelRecord& r : chosen) {
    const Removal removal = files ? plan_removal(r, registry.all(), registry.data_folder()) : Removal{};
    for (const std::string& kept : removal.kept) run.console.note("kept: " + kept);
    if (!confirmed(run, question(r, files, removal))) {
      run.console.note(r.name + " was not removed");
      status = 1;
      continue;
    }
    // Files first: interrupted in between, the record still tells what is left to do.
    if (files) remove_files(removal, registry.data_folder());
    registry.remove(r.key);
    json.push_back({{"key", r.key}, {"name", r.name}, {"files", removal.files.size()}, {"bytes", removal.bytes}});
    if (!run.console.json()) run.console.result(r.name);
  }
  if (run.console.json()) run.console.result(pretty(json));
  return status;
}

}  // namespace flux2
