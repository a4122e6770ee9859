#include "app/model_lists.h"

#include <algorithm>
#include <optional>
#include <set>

#include "app/model_choice.h"
#include "app/registry_access.h"
#include "base/path_exists.h"
#include "hub/registry/check_record.h"
#include "hub/registry/part_files.h"
#include "hub/registry/scan.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

// The record of the same type and place.
const ModelRecord* record_of(const Described& part, const std::vector<ModelRecord>& records) {
  const fs::path place = real_place(part.record.path);
  for (const ModelRecord& r : records)
    if (r.type == part.record.type && real_place(r.path) == place) return &r;
  return nullptr;
}

// What keeps a model from running although its own file is there: the sentence that a request would get.
std::optional<Error> lack_of(const ModelRecord& r, const AppContext& context, const RequestSpec& spec) {
  try {
    ModelQuery query = model_query(spec, context);
    query.model = r.key;
    locate_model(query, Log{});
    return std::nullopt;
  } catch (const Error& e) {
    return e;
  }
}

// Files that interrupted installations left: unfinished copies and downloads, and downloads that were not put into place.
std::vector<fs::path> partial_files(const fs::path& folder) {
  std::vector<fs::path> found;
  std::error_code failure;
  for (fs::recursive_directory_iterator entry(folder, failure), end; !failure && entry != end; entry.increment(failure)) {
    const fs::path& file = entry->path();
    const fs::path inner = file.lexically_relative(folder);
    const bool is_incoming = !inner.empty() && *inner.begin() == kIncomingFolder && is_model_file(file);
    if (is_partial_file(file) || is_incoming) found.push_back(file);
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace

Scan scan_models(const AppContext& context, const std::vector<fs::path>& folders, bool add,
                 const std::function<bool(const fs::path&)>& at) {
  Scan scan;
  for (const fs::path& folder : folders)
    for (Described& part : scan_folder(folder, at, context.log)) scan.parts.push_back({std::move(part), "", ""});
  std::optional<Registry> registry;
  if (add) registry = open_registry(context);
  else registry = look_into_registry(context);
  const std::vector<ModelRecord> before = registry ? registry->all() : std::vector<ModelRecord>{};
  for (ScannedPart& f : scan.parts) {
    const ModelRecord* known = record_of(f.part, before);
    if (known) f.key = known->key, f.name = known->name;
    if (!add || !f.part.usable()) continue;
    ModelRecord record = f.part.record;
    if (known) record.in_place = known->in_place, record.path = known->path;
    const ModelRecord stored = registry->add(std::move(record));
    f.key = stored.key, f.name = stored.name;
    scan.added += known == nullptr;
  }
  return scan;
}

Json to_json(const ScannedPart& f) {
  return {{"path", f.part.record.path.string()},
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
          {"name", f.name}};
}

Json to_json(const Described& part) {
  Json json = to_json(part.record);
  for (const char* later : {"key", "installed_at", "defaults", "components", "description", "cover_asset", "note"})
    json.erase(later);
  json["type"] = part.type;
  json["confidence"] = part.confidence;
  json["evidence"] = part.evidence;
  json["needs"] = part.needs;
  json["usable"] = part.usable();
  json["problem"] = part.problem;
  return json;
}

Json to_json(const Starter& s, const std::vector<ModelRecord>& ready) {
  Json parts = Json::array();
  uint64_t to_fetch = 0;
  for (const StarterPart& part : s.parts) {
    const ModelRecord* here = record_for(part, s, ready);
    if (!here) to_fetch += part.bytes;
    parts.push_back({{"type", name_of(part.type)},
                     {"what", part.what},
                     {"source", part.source},
                     {"bytes", part.bytes},
                     {"exact", part.exact},
                     {"license", part.licence},
                     {"gated", part.gated},
                     {"present", here != nullptr},
                     {"key", here ? here->key : ""},
                     {"name", here ? here->name : ""}});
  }
  return {{"name", s.name}, {"variant", s.variant}, {"summary", s.summary}, {"bytes_to_fetch", to_fetch}, {"parts", parts}};
}

std::vector<ModelRecord> ready_records(const AppContext& context) {
  std::vector<ModelRecord> records;
  if (const auto registry = look_into_registry(context)) records = registry->all();
  std::erase_if(records, [](const ModelRecord& r) { return quick_check(r).state != ModelState::Ready; });
  return records;
}

std::vector<MissingModel> missing_models(const AppContext& context, const RequestSpec& spec) {
  std::vector<MissingModel> missing;
  const auto registry = look_into_registry(context);
  for (const ModelRecord& r : registry ? registry->all() : std::vector<ModelRecord>{}) {
    const QuickCheck check = quick_check(r);
    const bool gone = check.state == ModelState::Missing || check.state == ModelState::Incomplete;
    const auto lack = !gone && r.type == ModelType::Main ? lack_of(r, context, spec) : std::nullopt;
    if (!gone && !lack) continue;
    missing.push_back(
        {r, gone ? name_of(check.state) : "incomplete", gone ? check.note : lack->what(), lack ? lack->hint() : Hint()});
  }
  return missing;
}

std::vector<Orphan> orphans(const AppContext& context) {
  std::set<std::pair<ModelType, fs::path>> known;
  if (const auto registry = look_into_registry(context))
    for (const ModelRecord& r : registry->all()) known.emplace(r.type, real_place(r.path));
  std::vector<Orphan> found;
  for (const fs::path& folder : model_folders(context)) {
    std::error_code unreadable;
    if (!fs::is_directory(folder, unreadable)) continue;
    for (const Described& part : scan_folder(folder, {}, context.log)) {
      const ModelRecord& r = part.record;
      if (known.contains({r.type, real_place(r.path)})) continue;
      found.push_back({r.path, part.type, r.variant, r.quant, name_of(r.state), part.problem, r.bytes});
    }
    for (const fs::path& partial : partial_files(folder))
      found.push_back({partial, "partial", "", "", "incomplete",
                       is_being_written(partial) ? "an installation that is under way is writing it"
                                                 : "left by an interrupted installation; run the same command again to continue",
                       fs::file_size(partial, unreadable)});
  }
  return found;
}

Json to_json(const Orphan& o) {
  return {{"path", o.path.string()}, {"type", o.type},   {"variant", o.variant},
          {"bytes", o.bytes},        {"state", o.state}, {"problem", o.problem}};
}

std::vector<OrphanFiles> deletable_orphans(const AppContext& context) {
  const Registry registry = open_registry(context);
  std::vector<OrphanFiles> files = orphan_files(registry.all(), registry.data_folder());
  std::erase_if(files, [](const OrphanFiles& one) { return one.in_use; });
  return files;
}

Json to_json(const OrphanFiles& o) {
  return {{"path", o.path.string()}, {"folder", o.is_folder}, {"partial", o.is_partial}, {"files", o.files}, {"bytes", o.bytes}};
}

}  // namespace flux2
