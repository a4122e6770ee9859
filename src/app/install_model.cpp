#include "app/install_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <set>

#include "app/address_download.h"
#include "app/registry_access.h"
#include "base/atomic_file.h"
#include "base/own_file.h"
#include "base/path_exists.h"
#include "base/path_inside.h"
#include "base/text.h"
#include "hub/registry/check_record.h"
#include "hub/registry/scan.h"
#include "hub/registry/starter.h"
#include "hub/remote/hub_cache.h"
#include "hub/remote/partial_file.h"
#include "net/public_address.h"
#include "weights/weight_files.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

// One installation on its way.
class Installation {
 public:
  Installation(const AppContext& context, const InstallRequest& request, const InstallHooks& hooks)
      : context_(context), request_(request), hooks_(hooks) {}

  std::vector<ModelRecord> run();

 private:
  void note(const std::string& text) const {
    if (hooks_.note) hooks_.note(text);
  }
  void warn(const std::string& text) const {
    if (hooks_.warn) hooks_.warn(text);
  }
  bool cancelled() const { return hooks_.cancelled && hooks_.cancelled(); }
  CopyProgress copying() const {
    return [this](uint64_t done, uint64_t total, const std::string& file) {
      return !cancelled() && (!hooks_.copying || hooks_.copying(done, total, file));
    };
  }

  std::vector<Described> usable_parts(const fs::path& source) const;
  std::vector<ModelRecord> copy_here(const fs::path& given) const;
  FetchOptions options_for(const Source& source) const;
  void forget(FetchPlan& plan) const;
  AddressDownload planned(const Source& source) const;
  std::vector<ModelRecord> already_installed(const AddressDownload& download, const std::string& name) const;
  std::vector<Described> parts_of(const Downloaded& download) const;
  std::vector<ModelRecord> register_download(const AddressDownload& asked, Downloaded download, const std::string& name) const;
  std::vector<ModelRecord> fetch_sources(const std::vector<Source>& sources) const;
  std::vector<Source> sources_of(const Starter& starter) const;

  const AppContext& context_;
  const InstallRequest& request_;
  const InstallHooks& hooks_;
};

// What a path holds that can be used. Anything damaged ends the matter; in a folder, parts this program has no use for may
// lie beside those it has.
std::vector<Described> Installation::usable_parts(const fs::path& source) const {
  std::vector<Described> parts = identify(source, context_.log), usable;
  for (const Described& part : parts) {
    if (part.usable()) usable.push_back(part);
    else if (part.record.state != ModelState::Unsupported || parts.size() == 1) require_usable({part}, source);
  }
  if (usable.empty()) require_usable(parts, source);
  for (const Described& part : parts)
    if (!part.usable()) warn(fmt::format("{}: {}", part.record.path.string(), part.problem));
  return usable;
}

// The place in the data folder: models/ROLE/FILE, models/ROLE/NAME/ for the folder of one part, models/NAME/ for a model.
fs::path target_of(const fs::path& source, const std::vector<Described>& parts, const std::string& name, const fs::path& models) {
  const fs::path role = models / role_folder(parts[0].record.type);
  if (!fs::is_directory(source)) return role / source.filename();
  return (parts.size() == 1 ? role : models) / (name.empty() ? parts[0].record.name : name_from(name));
}

// Whether something else has the place: another model, or files that are no copies of this source. A copy that is registered with
// this source may be older than the source now is; it is replaced.
bool is_taken(const fs::path& target, const fs::path& source, const std::vector<ModelRecord>& records,
              const CopyProgress& comparing) {
  if (path_exists(target) && fs::is_directory(target) != fs::is_directory(source)) return true;
  bool is_registered = false;
  if (path_exists(target))
    for (const ModelRecord& r : records)
      if (is_inside(r.path, target)) {
        if (r.source.ref != source.string()) return true;
        is_registered = true;
      }
  const auto copies = plan_copies(source, target);
  if (!is_registered)
    for (const PlannedCopy& copy : copies)
      if (path_exists(copy.to) && !is_copied(copy, comparing)) return true;
  if (!fs::is_directory(target)) return false;
  // Other weights in the folder could be read instead of the new ones.
  const auto here = plan_copies(target, target);
  return std::any_of(here.begin(), here.end(), [&](const PlannedCopy& file) {
    const std::string name = file.to.filename().string();
    const bool is_weights = name.ends_with(".safetensors") || name.ends_with(".gguf") || name.ends_with(".index.json");
    return is_weights && std::none_of(copies.begin(), copies.end(), [&](const PlannedCopy& copy) { return copy.to == file.to; });
  });
}

// If the place is taken, a number tells them apart. An interrupted installation of the same source continues.
fs::path free_target(const fs::path& wanted, const fs::path& source, const Registry& registry, const CopyProgress& comparing) {
  const auto records = registry.all();
  fs::path target = wanted;
  const auto series = series_name(wanted);
  const bool is_folder = fs::is_directory(source);
  for (int i = 2; is_taken(target, source, records, comparing); ++i) {
    if (is_folder) target.replace_filename(fmt::format("{}-{}", wanted.filename().string(), i));
    // The names of a series belong together, so it gets a folder of its own.
    else if (series) target = wanted.parent_path() / fmt::format("{}-{}", series->stem, i) / wanted.filename();
    else target.replace_filename(fmt::format("{}-{}{}", wanted.stem().string(), i, wanted.extension().string()));
  }
  return target;
}

std::vector<ModelRecord> Installation::copy_here(const fs::path& given) const {
  fs::path source = fs::absolute(given).lexically_normal();
  if (!source.has_filename()) source = source.parent_path();  // "folder/"
  const std::vector<Described> parts = usable_parts(source);
  const fs::path models = data_folder(context_.environment) / "models";
  const bool here = is_inside(source, fs::absolute(models).lexically_normal());
  Registry registry = open_registry(context_);
  if (request_.in_place || here) {
    if (hooks_.copies_planned && !hooks_.copies_planned({})) return {};
    return register_parts(registry, parts, {.name = request_.name, .in_place = !here});
  }
  const fs::path wanted = target_of(source, parts, request_.name, models),
                 target = free_target(wanted, source, registry, copying());
  if (target != wanted) note(fmt::format("{} is something else, so the copy goes to {}", wanted.string(), target.string()));
  const auto copies = plan_copies(source, target);
  if (hooks_.copies_planned && !hooks_.copies_planned(copies)) return {};
  NewParts how{.name = request_.name, .in_place = false, .source = {"path", source.string(), ""}};
  how.files = copy_files(copies, copying());
  if (hooks_.registering) hooks_.registering();
  return register_parts(registry, identify(target, context_.log), how);
}

FetchOptions Installation::options_for(const Source& source) const {
  FetchOptions options;
  options.hub = hub_settings_of(context_, request_.token);
  options.hub.offline = options.hub.offline || request_.offline;
  options.local_dir = request_.local_dir;
  if (source.repository.empty() && request_.public_addresses)
    options.hub.http.allows_address = [](const sockaddr* address) { return is_public_address(address); };
  options.largest_file = context_.limits.process.download_bytes;
  options.cancelled = [this] { return cancelled(); };
  return options;
}

// Deletes what is there of files that shall be downloaded from their first byte.
void Installation::forget(FetchPlan& plan) const {
  const bool cached = !plan.source.repository.empty() && request_.local_dir.empty();
  std::optional<HubCache> cache;
  if (cached) cache.emplace(hub_settings_of(context_).cache, plan.source.repository);
  for (PlannedFile& file : plan.files) {
    const bool named = std::find(request_.from_start.begin(), request_.from_start.end(), file.path) != request_.from_start.end();
    if (!named && (!request_.all_from_start || file.present)) continue;
    const bool blob = cache && is_blob_id(file.etag);
    const fs::path partial = blob ? cache->partial(file.etag) : fs::path(file.target.string() + ".part");
    std::error_code failure;
    fs::remove(partial, failure);
    remove_leftover_note_of(partial);
    if (file.present) {
      fs::remove(file.target, failure);
      if (blob) fs::remove(cache->blob(file.etag), failure);
      file.present = false;
    }
  }
}

AddressDownload Installation::planned(const Source& source) const {
  AddressDownload download = source.repository.empty()
                                 ? plan_address(source, options_for(source), request_.from_start, context_)
                                 : AddressDownload{.plan = plan_fetch(source, options_for(source), context_.log)};
  if (!download.is_here) forget(download.plan);
  return download;
}

std::vector<ModelRecord> Installation::already_installed(const AddressDownload& download, const std::string& name) const {
  std::vector<ModelRecord> records = download.before;
  note(fmt::format("{} is already installed: {}", printable(download.plan.source.url), records[0].name));
  if (!name.empty() && records[0].name != name) {
    records[0].name = name;
    open_registry(context_).update(records[0]);
  }
  return records;
}

// The parts that consist of what was fetched; a snapshot may hold others from before.
std::vector<Described> Installation::parts_of(const Downloaded& download) const {
  std::set<fs::path> fetched;
  for (const FetchedFile& f : download.files) fetched.insert(fs::weakly_canonical(f.local.parent_path()) / f.local.filename());
  std::vector<Described> parts = scan_folder(download.root, {}, context_.log);
  std::erase_if(parts, [&](const Described& part) {
    return std::none_of(part.record.files.begin(), part.record.files.end(),
                        [&](const RecordedFile& f) { return fetched.contains(f.path); });
  });
  return parts;
}

std::vector<ModelRecord> Installation::register_download(const AddressDownload& asked, Downloaded download,
                                                         const std::string& name) const {
  const bool from_hub = !download.repository.empty();
  std::vector<Described> parts =
      asked.incoming ? moved_into_place(download.files.at(0), asked.before, copying(), context_) : parts_of(download);
  NewParts how{.name = name, .in_place = from_hub && request_.local_dir.empty()};
  if (from_hub) {
    how.source = {"hub", download.repository, download.commit};
  } else {
    // A file that lay in the named folder already may be of another revision, unless its hash was compared.
    const bool is_known = !download.files.at(0).was_present || asked.incoming || is_hex(asked.plan.files.at(0).etag, 64);
    how.source = {"url", download.url, is_known ? asked.revision : ""};
  }
  for (const FetchedFile& f : download.files)
    how.files.push_back({fs::weakly_canonical(f.local.parent_path()) / f.local.filename(), f.size, f.sha256});
  for (Described& part : parts) {
    if (!download.licence.empty()) part.record.license = download.licence;
    part.record.gated = part.record.gated || download.gated;
    if (!part.usable()) warn(fmt::format("{}: {}", part.record.path.string(), part.problem));
  }
  if (parts.empty()) warn("none of the downloaded files is a model");
  Registry registry = open_registry(context_);
  return register_parts(registry, parts, how);
}

std::vector<ModelRecord> Installation::fetch_sources(const std::vector<Source>& sources) const {
  std::vector<AddressDownload> downloads;
  downloads.reserve(sources.size());
  for (const Source& source : sources) downloads.push_back(planned(source));
  if (hooks_.planned) {
    std::vector<FetchPlan> plans;
    plans.reserve(downloads.size());
    for (const AddressDownload& d : downloads) plans.push_back(d.plan);
    if (!hooks_.planned(plans)) return {};
  }
  std::vector<ModelRecord> installed;
  for (size_t i = 0; i < downloads.size(); ++i) {
    const AddressDownload& d = downloads[i];
    const std::string name = installed.empty() ? request_.name : "";
    std::vector<ModelRecord> records;
    if (d.is_here) {
      records = already_installed(d, name);
    } else {
      FetchOptions options = options_for(d.plan.source);
      if (d.incoming) options.local_dir = d.incoming->path();
      FetchProgress progress;
      if (hooks_.fetching) progress = [&, i](const FetchStatus& status) { hooks_.fetching(i, status); };
      const Downloaded download = fetch(d.plan, options, progress, context_.log);
      if (hooks_.registering) hooks_.registering();
      records = register_download(d, download, name);
    }
    installed.insert(installed.end(), records.begin(), records.end());
  }
  return installed;
}

// The parts that are not here yet; those of one repository are asked for together.
std::vector<Source> Installation::sources_of(const Starter& starter) const {
  std::vector<ModelRecord> records;
  if (const auto registry = look_into_registry(context_)) records = registry->all();
  std::erase_if(records, [](const ModelRecord& r) { return quick_check(r).state != ModelState::Ready; });
  std::vector<Source> sources;
  for (const StarterPart& part : starter.parts) {
    if (const ModelRecord* here = record_for(part, starter, records)) {
      note(fmt::format("{} is already installed: {}", part.what, here->name));
      continue;
    }
    const Source source = *parse_source(part.source);
    const auto same = std::find_if(sources.begin(), sources.end(), [&](const Source& s) {
      return s.repository == source.repository && s.variant == source.variant && !s.paths.empty() && !source.paths.empty();
    });
    if (same == sources.end()) sources.push_back(source);
    else same->paths.insert(same->paths.end(), source.paths.begin(), source.paths.end());
  }
  return sources;
}

std::vector<ModelRecord> Installation::run() {
  const std::string& text = request_.source;
  if (!request_.name.empty()) check_model_name(request_.name);
  if (!request_.never_a_path && path_exists(text)) return copy_here(text);
  if (request_.in_place)
    throw Error(ErrorCode::InvalidArgument, fmt::format("{} is not on this machine, so it cannot be used where it is", text),
                Hint("leave out {0}", {set_option("in_place")}));
  if (const Starter* starter = find_starter(text)) {
    const std::vector<Source> sources = sources_of(*starter);
    if (sources.empty()) note(fmt::format("all parts of {} are already installed", starter->name));
    return sources.empty() ? std::vector<ModelRecord>{} : fetch_sources(sources);
  }
  std::optional<Source> source = parse_source(text, hub_settings_of(context_).endpoint);
  if (!source) {
    const fs::path path(text);
    if (path.extension() == ".safetensors" || path.extension() == ".gguf" || path.is_absolute() || text.starts_with("."))
      fail(ErrorCode::NotFound, "{} does not exist", text);
    std::vector<std::string> names;
    for (const Starter& s : starters()) names.push_back(s.name);
    throw Error(ErrorCode::NotFound,
                fmt::format("{} is neither a file, a repository (owner/name), an address nor a starter", text),
                fmt::format("the nearest starters are {}", fmt::join(nearest_words(text, names, 3), ", ")));
  }
  if (!request_.revision.empty()) source->revision = request_.revision;
  return fetch_sources({*source});
}

fs::path token_file(const AppContext& context) { return data_path(context.environment, "hub-token"); }

}  // namespace

std::vector<ModelRecord> install_model(const AppContext& context, const InstallRequest& request, const InstallHooks& hooks) {
  return Installation(context, request, hooks).run();
}

HubSettings hub_settings_of(const AppContext& context, const std::string& token) {
  HubSettings settings = hub_settings(context.environment, token);
  if (settings.token.empty()) settings.token = stored_hub_token(context);
  return settings;
}

std::string stored_hub_token(const AppContext& context) {
  const fs::path file = token_file(context);
  std::error_code failure;
  if (file.empty() || !fs::is_regular_file(file, failure)) return {};
  try {
    return std::string(trimmed(read_text_file(file, {.bytes = 4096})));
  } catch (const Error&) {
    return {};  // not readable for us: as if it were not there
  }
}

void store_hub_token(const AppContext& context, const std::string& token) {
  const fs::path file = token_file(context);
  if (file.empty()) fail(ErrorCode::CannotWrite, "the data folder is unknown, because neither HOME nor FLUX2_HOME is set");
  std::error_code failure;
  if (token.empty()) {
    fs::remove(file, failure);
    if (failure) fail(ErrorCode::CannotWrite, "the token cannot be deleted: {}", failure.message());
    return;
  }
  check(token.size() <= 1024 && std::all_of(token.begin(), token.end(), [](char c) { return c > 0x20 && c < 0x7f; }),
        "a token has at most 1024 printable characters and no blanks");
  // The file that is replaced decides who may read the new one, so it is there before the token is.
  fs::create_directories(file.parent_path(), failure);
  ::close(open_own_file(file));
  if (::chmod(file.c_str(), S_IRUSR | S_IWUSR) != 0)
    fail(ErrorCode::CannotWrite, "{} cannot be protected from other users", file.string());
  AtomicFile out(file);
  out.write(token.data(), token.size());
  out.commit();
}

const char* role_folder(ModelType type) {
  switch (type) {
    case ModelType::Main: return "diffusion_models";
    case ModelType::Vae:
    case ModelType::TinyVae: return "vae";
    case ModelType::TextEncoder: return "text_encoders";
    case ModelType::Tokenizer: return "tokenizers";
    case ModelType::Lora: return "loras";
    case ModelType::Upscaler: return "upscale_models";
    case ModelType::Classifier: return "classifiers";
    case ModelType::ImageEncoder: return "clip_vision";
    case ModelType::ImagePrompt: return "ipadapter";
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
        if (!known.sha256.empty() && known.path.filename() == f.path.filename() && real_place(known.path) == real_place(f.path)) {
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

}  // namespace flux2
