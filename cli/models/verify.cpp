#include <fmt/format.h>

#include "app/registry_access.h"
#include "cli/models/models.h"
#include "cli/table.h"
#include "hub/registry/check_record.h"

namespace flux2 {

int run_models_verify(Invocation& run) {
  Registry registry = open_registry(run);
  std::vector<ModelRecord> records;
  for (const std::string& name : run.positional) records.push_back(record_named(registry, name));
  if (run.positional.empty()) records = registry.all();
  if (records.empty()) run.console.note("nothing is registered");
  Json json = Json::array();
  std::vector<std::vector<std::string>> rows = {{"NAME", "STATE", "SHA-256", ""}};
  bool good = true;
  for (const ModelRecord& r : records) {
    CheckOptions options{.values = run.settings.flag("values"), .quick = run.settings.flag("quick")};
    options.progress = [&](uint64_t done, uint64_t total, const std::string& file) {
      return show_bytes(run, r.name + ": " + file, done, total);
    };
    const ModelRecord now = check_record(registry, r, options, run.console.log());
    good = good && now.state == ModelState::Ready;
    rows.push_back({now.name, name_of(now.state), now.sha256.substr(0, 12), now.note});
    json.push_back(
        {{"key", now.key}, {"name", now.name}, {"state", name_of(now.state)}, {"sha256", now.sha256}, {"note", now.note}});
  }
  run.console.clear_status();
  if (run.console.json()) run.console.result(pretty(json));
  else if (!records.empty()) run.console.result(text_table(rows));
  return good ? 0 : exit_code(ErrorCode::BadFile);
}

}  // namespace flux2
