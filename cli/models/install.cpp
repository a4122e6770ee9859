#include "cli/models/install.h"

#include <fmt/format.h>

#include <algorithm>

#include "app/context.h"
#include "app/registry_access.h"
#include "base/path_exists.h"
#include "base/text.h"
#include "cli/models/models.h"
#include "cli/table.h"
#include "hub/registry/check_record.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

// What a path holds that can be used. Anything damaged ends the matter; in a folder, parts this program has no use for may
// lie beside those it has.
std::vector<Described> usable_parts(Invocation& run, const fs::path& source) {
  std::vector<Described> parts = identify(source, run.console.log()), usable;
  for (const Described& part : parts) {
    if (part.usable()) usable.push_back(part);
    else if (part.record.state != ModelState::Unsupported || parts.size() == 1) require_usable({part}, source);
  }
  if (usable.empty()) require_usable(parts, source);
  for (const Described& part : parts)
    if (!part.usable()) run.console.warn(fmt::format("{}: {}", part.record.path.string(), part.problem));
  return usable;
}

// The place in the data folder: models/ROLE/FILE, models/ROLE/NAME/ for the folder of one part, models/NAME/ for a model.
fs::path target_of(const fs::path& source, const std::vector<Described>& parts, const std::string& name, const fs::path& models) {
  const fs::path role = models / role_folder(parts[0].record.type);
  if (!fs::is_directory(source)) return role / source.filename();
  return (parts.size() == 1 ? role : models) / (name.empty() ? parts[0].record.name : name_from(name));
}

// Another model may have the place already; then a number tells them apart. An installation of the same source that was
// interrupted is gone on with.
fs::path free_target(const fs::path& wanted, const fs::path& source, const Registry& registry) {
  const auto records = registry.all();
  const auto taken = [&](const fs::path& target) {
    return path_exists(target) && std::any_of(records.begin(), records.end(), [&](const ModelRecord& r) {
             const fs::path relative = r.path.lexically_relative(target);
             const bool inside = relative == "." || (!relative.empty() && *relative.begin() != "..");
             return inside && r.source.ref != source.string();
           });
  };
  fs::path target = wanted;
  const std::string stem = fs::is_directory(source) ? wanted.filename().string() : wanted.stem().string();
  const std::string tail = fs::is_directory(source) ? "" : wanted.extension().string();
  for (int i = 2; taken(target); ++i) target.replace_filename(fmt::format("{}-{}{}", stem, i, tail));
  return target;
}

void list_copies(Invocation& run, const std::vector<PlannedCopy>& copies) {
  Json json = Json::array();
  std::vector<std::vector<std::string>> rows = {{"SIZE", "FROM", "TO"}};
  for (const PlannedCopy& c : copies) {
    rows.push_back({byte_text(c.bytes), c.from.string(), c.to.string()});
    json.push_back({{"bytes", c.bytes}, {"from", c.from.string()}, {"to", c.to.string()}});
  }
  run.console.result(run.console.json() ? pretty(json) : text_table(rows));
}

std::vector<ModelRecord> install_local(Invocation& run, const fs::path& given) {
  fs::path source = fs::absolute(given).lexically_normal();
  if (!source.has_filename()) source = source.parent_path();  // "folder/"
  const std::string name = run.settings.text("name");
  if (!name.empty()) check_model_name(name);
  const std::vector<Described> parts = usable_parts(run, source);
  const fs::path models = data_folder(run.environment) / "models";
  const fs::path relative = source.lexically_relative(fs::absolute(models).lexically_normal());
  const bool here = !relative.empty() && *relative.begin() != "..";
  Registry registry = open_registry(run);
  if (run.settings.flag("in-place") || here) {
    if (run.settings.flag("dry-run")) return {};
    return register_parts(registry, parts, {.name = name, .in_place = !here});
  }
  const fs::path target = free_target(target_of(source, parts, name, models), source, registry);
  const auto copies = plan_copies(source, target);
  if (run.settings.flag("dry-run")) {
    list_copies(run, copies);
    return {};
  }
  NewParts how{.name = name, .in_place = false, .source = {"path", source.string(), ""}};
  how.files = copy_files(
      copies, [&](uint64_t done, uint64_t total, const std::string& file) { return show_bytes(run, file, done, total); });
  run.console.clear_status();
  return register_parts(registry, identify(target, run.console.log()), how);
}

}  // namespace

const char* role_folder(ModelType type) {
  switch (type) {
    case ModelType::Main: return "diffusion_models";
    case ModelType::Vae:
    case ModelType::TinyVae: return "vae";
    case ModelType::TextEncoder: return "text_encoders";
    case ModelType::Tokenizer: return "tokenizers";
    case ModelType::Lora: return "loras";
    case ModelType::Upscaler: return "upscale_models";
  }
  return "other";
}

std::vector<ModelRecord> register_parts(Registry& registry, std::vector<Described> parts, const NewParts& how) {
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Described& a, const Described& b) { return a.record.type < b.record.type; });
  std::vector<ModelRecord> stored;
  for (const Described& part : parts) {
    if (!part.usable()) continue;
    ModelRecord r = part.record;
    r.in_place = how.in_place;
    if (!how.source.kind.empty()) r.source = how.source;
    bool all_known = !r.files.empty();
    for (RecordedFile& f : r.files) {
      for (const RecordedFile& known : how.files)
        if (known.path == f.path && !known.sha256.empty()) {
          f.sha256 = known.sha256;
          registry.remember_hash(f.path, f.sha256);
        }
      all_known = all_known && !f.sha256.empty();
    }
    if (all_known) r.sha256 = hash_of_files(r.files), use_known_hash(r);
    if (stored.empty() && !how.name.empty()) r.name = how.name;
    ModelRecord now = registry.add(r);
    if (stored.empty() && !how.name.empty() && now.name != how.name) {  // it had another name before, or the name is taken
      now.name = how.name;
      registry.update(now);
    }
    stored.push_back(std::move(now));
  }
  return stored;
}

int run_models_install(Invocation& run) {
  check(!run.positional.empty(),
        "models install needs something to install: a file, a folder, a starter's name, owner/repository or an address");
  check(run.positional.size() == 1 || !run.settings.has("name"), "--name is for one model at a time");
  std::vector<ModelRecord> installed;
  for (const std::string& source : run.positional) {
    const auto records = path_exists(source) ? install_local(run, source) : install_remote(run, source);
    installed.insert(installed.end(), records.begin(), records.end());
  }
  if (run.settings.flag("dry-run")) return 0;
  Json json = Json::array();
  for (const ModelRecord& r : installed) {
    json.push_back(to_json(r));
    if (!run.console.json()) run.console.result(fmt::format("{}  {} {} in {}", r.name, name_of(r.type), r.key, r.path.string()));
  }
  if (run.console.json()) run.console.result(pretty(json));
  return 0;
}

}  // namespace flux2
