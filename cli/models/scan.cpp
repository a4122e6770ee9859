#include <fmt/format.h>

#include "app/context.h"
#include "app/registry_access.h"
#include "cli/models/models.h"
#include "cli/table.h"
#include "cli/user_input.h"
#include "hub/registry/scan.h"

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

struct Found {
  Described part;
  std::string key, name;  // of its record; empty when it has none
};

// The record of the same type and path.
const ModelRecord* record_of(const Described& part, const std::vector<ModelRecord>& records) {
  for (const ModelRecord& r : records)
    if (r.type == part.record.type && r.path == part.record.path) return &r;
  return nullptr;
}

}  // namespace

int run_models_scan(Invocation& run) {
  const bool add = run.settings.flag("add");
  std::vector<Found> found;
  for (const fs::path& folder : folders_to_scan(run)) {
    const auto parts = scan_folder(
        folder,
        [&](const fs::path& at) {
          if (run.console.progress() == ProgressMode::Bar) run.console.status("looking at " + at.string());
          return interrupt_signal() == 0;
        },
        run.console.log());
    for (const Described& part : parts) found.push_back({part, "", ""});
  }
  run.console.clear_status();

  std::optional<Registry> registry;
  if (add) registry = open_registry(run);
  else registry = look_into_registry(run);
  const std::vector<ModelRecord> before = registry ? registry->all() : std::vector<ModelRecord>{};
  size_t added = 0;
  for (Found& f : found) {
    const ModelRecord* known = record_of(f.part, before);
    if (known) f.key = known->key, f.name = known->name;
    if (!add || !f.part.usable()) continue;
    ModelRecord record = f.part.record;
    if (known) record.in_place = known->in_place;
    const ModelRecord stored = registry->add(std::move(record));
    f.key = stored.key, f.name = stored.name;
    added += known == nullptr;
  }

  if (run.console.json()) {
    Json json = Json::array();
    for (const Found& f : found)
      json.push_back({{"path", f.part.record.path.string()},
                      {"type", f.part.type},
                      {"family", f.part.record.family},
                      {"variant", f.part.record.variant},
                      {"format", f.part.record.format},
                      {"quant", f.part.record.quant},
                      {"bytes", f.part.record.bytes},
                      {"state", name_of(f.part.record.state)},
                      {"problem", f.part.problem},
                      {"installed", !f.key.empty()},
                      {"key", f.key},
                      {"name", f.name}});
    run.console.result(pretty(json));
    return 0;
  }
  std::vector<std::vector<std::string>> rows = {{"TYPE", "VARIANT", "QUANT", "SIZE", "STATE", "NAME", "PATH"}};
  for (const Found& f : found) {
    auto row = described_row(f.part);
    row.push_back(f.name.empty() ? "-" : f.name);
    row.push_back(f.part.record.path.string());
    rows.push_back(std::move(row));
  }
  if (!found.empty()) run.console.result(text_table(rows));
  for (const Found& f : found)
    if (!f.part.usable()) run.console.note(fmt::format("{}: {}", f.part.record.path.string(), f.part.problem));
  if (found.empty()) run.console.note("no models found");
  else if (add) run.console.note(fmt::format("{} newly registered", added));
  else run.console.note("run again with --add to register the usable models");
  return 0;
}

}  // namespace flux2
