#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "app/context.h"
#include "app/model_choice.h"
#include "app/registry_access.h"
#include "base/text.h"
#include "cli/models/models.h"
#include "cli/table.h"
#include "hub/registry/check_record.h"
#include "hub/registry/scan.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

// What keeps a model from running although its own file is there: the sentence that generate would say.
std::optional<Error> lack_of(const ModelRecord& r, const Invocation& run) {
  try {
    ModelQuery query = model_query(run.spec(), run);
    query.model = r.key;
    locate_model(query, Log{});
    return std::nullopt;
  } catch (const Error& e) {
    return e;
  }
}

// Files that an interrupted installation left: .NAME.partial with its note.
std::vector<fs::path> partial_files(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (fs::recursive_directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure))
    if (entry->path().filename().string().ends_with(".partial")) found.push_back(entry->path());
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

int run_models_missing(Invocation& run) {
  refuse_arguments(run);
  Json json = Json::array();
  std::vector<std::vector<std::string>> rows = {{"NAME", "STATE", ""}};
  const auto registry = look_into_registry(run);
  for (const ModelRecord& r : registry ? registry->all() : std::vector<ModelRecord>{}) {
    const QuickCheck check = quick_check(r);
    const bool gone = check.state == ModelState::Missing || check.state == ModelState::Incomplete;
    const auto lack = !gone && r.type == ModelType::Main ? lack_of(r, run) : std::nullopt;
    if (!gone && !lack) continue;
    const std::string state = gone ? name_of(check.state) : "incomplete", note = gone ? check.note : lack->what();
    rows.push_back({r.name, state, note});
    if (lack && !lack->hint().empty()) rows.push_back({"", "", "hint: " + command_line_words(lack->hint())});
    json.push_back({{"key", r.key},
                    {"name", r.name},
                    {"type", name_of(r.type)},
                    {"path", r.path.string()},
                    {"state", state},
                    {"note", note},
                    {"hint", lack ? command_line_words(lack->hint()) : ""}});
  }
  if (run.console.json()) run.console.result(pretty(json));
  else if (!json.empty()) run.console.result(text_table(rows));
  else run.console.note("nothing is missing");
  return 0;
}

int run_models_orphans(Invocation& run) {
  refuse_arguments(run);
  std::set<std::pair<ModelType, fs::path>> known;
  if (const auto registry = look_into_registry(run))
    for (const ModelRecord& r : registry->all()) known.emplace(r.type, r.path);
  Json json = Json::array();
  std::vector<std::vector<std::string>> rows = {{"TYPE", "VARIANT", "QUANT", "SIZE", "STATE", "PATH"}};
  for (const fs::path& folder : model_folders(run)) {
    std::error_code unreadable;
    if (!fs::is_directory(folder, unreadable)) continue;
    for (const Described& part : scan_folder(folder, {}, run.console.log())) {
      if (known.contains({part.record.type, part.record.path})) continue;
      auto row = described_row(part);
      row.push_back(part.record.path.string());
      rows.push_back(std::move(row));
      json.push_back({{"path", part.record.path.string()},
                      {"type", part.type},
                      {"variant", part.record.variant},
                      {"bytes", part.record.bytes},
                      {"state", name_of(part.record.state)},
                      {"problem", part.problem}});
    }
    for (const fs::path& partial : partial_files(folder)) {
      const uint64_t bytes = fs::file_size(partial, unreadable);
      rows.push_back({"partial", "", "", byte_text(bytes), "incomplete", partial.string()});
      json.push_back({{"path", partial.string()},
                      {"type", "partial"},
                      {"variant", ""},
                      {"bytes", bytes},
                      {"state", "incomplete"},
                      {"problem", "left by an interrupted installation; run the same command again to continue"}});
    }
  }
  if (run.console.json()) run.console.result(pretty(json));
  else if (!json.empty()) run.console.result(text_table(rows));
  else run.console.note("every model in the model folders is registered");
  return 0;
}

}  // namespace flux2
