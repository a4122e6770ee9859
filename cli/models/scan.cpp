#include <fmt/format.h>

#include "app/context.h"
#include "app/model_lists.h"
#include "cli/models/models.h"
#include "cli/table.h"
#include "cli/user_input.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

std::vector<fs::path> folders_to_scan(const Invocation& run) {
  std::vector<fs::path> folders(run.positional.begin(), run.positional.end());
  if (!folders.empty()) return folders;
  for (const fs::path& folder : model_folders(run)) {
    std::error_code unreadable;
    if (fs::is_directory(folder, unreadable)) folders.push_back(folder);
  }
  return folders;
}

}  // namespace

int run_models_scan(Invocation& run) {
  const bool add = run.settings.flag("add");
  AppContext context = run;
  context.log = run.console.log();
  const Scan scan = scan_models(context, folders_to_scan(run), add, [&](const fs::path& at) {
    if (run.console.progress() == ProgressMode::Bar) run.console.status("looking at " + at.string());
    return interrupt_signal() == 0;
  });
  run.console.clear_status();

  if (run.console.json()) {
    Json json = Json::array();
    for (const ScannedPart& f : scan.parts) json.push_back(to_json(f));
    run.console.result(pretty(json));
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {{"TYPE", "VARIANT", "QUANT", "SIZE", "STATE", "NAME", "PATH"}};
  for (const ScannedPart& f : scan.parts) {
    auto row = described_row(f.part);
    row.push_back(f.name.empty() ? "-" : f.name);
    row.push_back(f.part.record.path.string());
    rows.push_back(std::move(row));
  }
  if (!scan.parts.empty()) run.console.result(text_table(rows));
  for (const ScannedPart& f : scan.parts)
    if (!f.part.usable()) run.console.note(fmt::format("{}: {}", f.part.record.path.string(), f.part.problem));
  if (scan.parts.empty()) run.console.note("no models found");
  else if (add) run.console.note(fmt::format("{} newly registered", scan.added));
  else run.console.note("run again with --add to register the usable models");
  return 0;
}

}  // namespace flux2
