#include <fmt/format.h>

#include <algorithm>

#include "app/context.h"
#include "app/model_lists.h"
#include "app/registry_access.h"
#include "base/text.h"
#include "cli/models/models.h"
#include "cli/table.h"
#include "cli/user_input.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

// The path in its folder without links; the last part may be a link itself.
fs::path placed(const fs::path& path) {
  std::error_code failure;
  fs::path full = fs::absolute(path).lexically_normal();
  if (full.filename().empty()) full = full.parent_path();
  return fs::weakly_canonical(full.parent_path(), failure) / full.filename();
}

// The entries that the arguments name: as they are, or below the models folder. All of them without arguments.
std::vector<OrphanFiles> chosen(const std::vector<std::string>& names, std::vector<OrphanFiles> all, const fs::path& models) {
  if (names.empty()) return all;
  std::vector<OrphanFiles> some;
  for (const std::string& name : names) {
    const auto is_named = [&](const OrphanFiles& one) { return one.path == placed(models / name) || one.path == placed(name); };
    const auto found = std::find_if(all.begin(), all.end(), is_named);
    if (found == all.end())
      throw Error(ErrorCode::NotFound,
                  fmt::format("{} is not a file or folder of {} that belongs to no model", name, models.string()),
                  "run without a path to be asked about each of them");
    some.push_back(*found);
  }
  return some;
}

int delete_orphans(Invocation& run) {
  Registry registry = open_registry(run);
  const fs::path models = registry.data_folder() / "models";
  Json json = Json::array();
  int status = 0;
  const auto list = chosen(run.positional, orphan_files(registry.all(), registry.data_folder()), models);
  for (const OrphanFiles& one : list) {
    if (one.in_use) {
      run.console.note(one.path.string() + " was not deleted: an installation that is under way is writing it");
      if (!run.positional.empty()) status = 1;
      continue;
    }
    if (!confirmed(run, fmt::format("Delete {} ({}, {})?", one.path.string(), files_text(one.files), byte_text(one.bytes)))) {
      run.console.note(one.path.string() + " was not deleted");
      status = 1;
      continue;
    }
    remove_orphans({one.path}, registry.all(), registry.data_folder());  // looks again: it may be registered by now
    json.push_back(to_json(one));
    if (!run.console.json()) run.console.result(one.path.string());
  }
  if (run.console.json()) run.console.result(pretty(json));
  else if (list.empty()) run.console.note("every file in " + models.string() + " belongs to a registered model");
  return status;
}

}  // namespace

int run_models_orphans(Invocation& run) {
  if (run.settings.flag("delete")) return delete_orphans(run);
  if (!run.positional.empty())
    throw Error(ErrorCode::InvalidArgument, fmt::format("unexpected argument \"{}\"", run.positional[0]),
                "paths belong to --delete");
  AppContext context = run;
  context.log = run.console.log();
  Json json = Json::array();
  std::vector<std::vector<std::string>> rows = {{"TYPE", "VARIANT", "QUANT", "SIZE", "STATE", "PATH"}};
  for (const Orphan& o : orphans(context)) {
    rows.push_back({o.type, o.variant, o.quant, byte_text(o.bytes), o.state, o.path.string()});
    json.push_back(to_json(o));
  }
  if (run.console.json()) run.console.result(pretty(json));
  else if (!json.empty()) run.console.result(text_table(rows));
  else run.console.note("every model in the model folders is registered");
  return 0;
}

}  // namespace flux2
