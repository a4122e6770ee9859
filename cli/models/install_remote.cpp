#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "app/context.h"
#include "app/registry_access.h"
#include "base/own_file.h"
#include "base/text.h"
#include "cli/models/install.h"
#include "cli/models/models.h"
#include "cli/table.h"
#include "cli/user_input.h"
#include "hub/registry/check_record.h"
#include "hub/registry/scan.h"
#include "hub/registry/starter.h"
#include "hub/remote/fetch.h"

namespace flux2 {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

namespace {

constexpr uint64_t kWorthAsking = 1'000'000'000;  // bytes, where somebody sits in front of it

FetchOptions options_for(const Source& source, Invocation& run) {
  FetchOptions options;
  options.hub = hub_settings(run.environment, run.settings.text("token"));
  options.hub.offline = options.hub.offline || run.settings.flag("offline");
  options.local_dir = run.settings.text("local-dir");
  // What a plain address holds is known once it is here; until then it waits where nobody looks for models.
  if (source.repository.empty() && options.local_dir.empty())
    options.local_dir = data_folder(run.environment) / "models/.incoming";
  options.largest_file = run.limits.process.download_bytes;
  options.cancelled = [] { return interrupt_signal() != 0; };
  return options;
}

// A terminal sees every report in one line; a log gets a line every ten seconds and for each finished file, a program an event
// a second.
FetchProgress progress_for(Invocation& run) {
  using Clock = std::chrono::steady_clock;
  return [&run, shown = Clock::now(), done = 0](const FetchStatus& s) mutable {
    const ProgressMode mode = run.console.progress();
    const auto pause = mode == ProgressMode::Bar ? 0s : mode == ProgressMode::Json ? 1s : 10s;
    const bool due = Clock::now() - shown >= pause || s.files_done != done;
    if (mode == ProgressMode::Off || !due) return;
    shown = Clock::now();
    done = s.files_done;
    if (mode == ProgressMode::Json)
      return run.console.event({{"event", "install.progress"},
                                {"file", s.file},
                                {"bytes", s.bytes},
                                {"total", s.total},
                                {"speed", s.bytes_per_s},
                                {"eta_s", s.eta_s}});
    std::string line = fmt::format("{} {}  {} of {}, {}/{} files", s.verifying ? "checking" : "fetching", s.file,
                                   byte_text(s.bytes), byte_text(s.total), s.files_done, s.files);
    if (s.bytes_per_s > 0) line += fmt::format("  {}/s", byte_text(static_cast<uint64_t>(s.bytes_per_s)));
    if (s.eta_s >= 0) line += fmt::format("  {:.0f} s left", s.eta_s);
    mode == ProgressMode::Bar ? run.console.status(line) : run.console.note(line);
  };
}

void list_plans(Invocation& run, const std::vector<FetchPlan>& plans) {
  Json json = Json::array();
  std::vector<std::vector<std::string>> rows = {{"SIZE", "", "FROM", "TO"}};
  for (const FetchPlan& plan : plans) {
    if (!plan.reason.empty()) run.console.note(plan.reason);
    for (const PlannedFile& f : plan.files) {
      rows.push_back({byte_text(f.size), f.present ? "here" : "", f.url, f.target.string()});
      json.push_back(
          {{"bytes", f.size}, {"present", f.present}, {"url", f.url}, {"target", f.target.string()}, {"etag", f.etag}});
    }
  }
  run.console.result(run.console.json() ? pretty(json) : text_table(rows));
}

// A file that came from a plain address goes to the role folder of what it turned out to be.
std::vector<Described> moved_into_place(Invocation& run, Downloaded& download) {
  FetchedFile& file = download.files.at(0);
  const std::vector<Described> parts = identify(file.local, run.console.log());
  require_usable(parts, file.local);
  const fs::path folder = data_folder(run.environment) / "models" / role_folder(parts.at(0).record.type);
  fs::path target = folder / file.local.filename();
  fs::create_directories(folder);
  for (int i = 2; !rename_to_free_name(file.local, target); ++i)
    target = folder / fmt::format("{}-{}{}", file.local.stem().string(), i, file.local.extension().string());
  file.local = target;
  return identify(target, run.console.log());
}

// The parts that consist of what was fetched; a snapshot may hold others from before.
std::vector<Described> parts_of(Invocation& run, const Downloaded& download) {
  std::set<fs::path> fetched;
  for (const FetchedFile& f : download.files) fetched.insert(fs::weakly_canonical(f.local.parent_path()) / f.local.filename());
  std::vector<Described> parts = scan_folder(download.root, {}, run.console.log());
  std::erase_if(parts, [&](const Described& part) {
    return std::none_of(part.record.files.begin(), part.record.files.end(),
                        [&](const RecordedFile& f) { return fetched.contains(f.path); });
  });
  return parts;
}

std::vector<ModelRecord> register_download(Invocation& run, Downloaded download, const std::string& name) {
  const bool from_hub = !download.repository.empty();
  const bool incoming = !from_hub && !run.settings.has("local-dir");
  std::vector<Described> parts = incoming ? moved_into_place(run, download) : parts_of(run, download);
  NewParts how{.name = name, .in_place = from_hub && !run.settings.has("local-dir")};
  how.source = from_hub ? ModelSource{"hub", download.repository, download.commit} : ModelSource{"url", download.url, ""};
  for (const FetchedFile& f : download.files)
    how.files.push_back({fs::weakly_canonical(f.local.parent_path()) / f.local.filename(), f.size, f.sha256});
  for (Described& part : parts) {
    if (!download.licence.empty()) part.record.license = download.licence;
    part.record.gated = part.record.gated || download.gated;
    if (!part.usable()) run.console.warn(fmt::format("{}: {}", part.record.path.string(), part.problem));
  }
  if (parts.empty()) run.console.warn("none of the downloaded files is a model");
  Registry registry = open_registry(run);
  return register_parts(registry, parts, how);
}

std::vector<ModelRecord> install_sources(Invocation& run, const std::vector<Source>& sources) {
  std::vector<FetchPlan> plans;
  uint64_t missing = 0;
  for (const Source& source : sources) {
    plans.push_back(plan_fetch(source, options_for(source, run), run.console.log()));
    missing += plans.back().missing_bytes();
  }
  if (run.settings.flag("dry-run")) {
    list_plans(run, plans);
    return {};
  }
  if (missing > kWorthAsking && ::isatty(STDIN_FILENO) != 0 &&
      !confirmed(run, fmt::format("Fetch {} into {}?", byte_text(missing), plans[0].root.string())))
    throw Error(ErrorCode::InvalidArgument, "nothing was fetched", "--dry-run lists the files; --yes does not ask");
  std::vector<ModelRecord> installed;
  for (const FetchPlan& plan : plans) {
    const Downloaded download = fetch(plan, options_for(plan.source, run), progress_for(run), run.console.log());
    run.console.clear_status();
    const auto records = register_download(run, download, installed.empty() ? run.settings.text("name") : "");
    installed.insert(installed.end(), records.begin(), records.end());
  }
  return installed;
}

// The parts that are not here yet; those of one repository are asked for together.
std::vector<Source> sources_of(const Starter& starter, Invocation& run) {
  std::vector<ModelRecord> records;
  if (const auto registry = look_into_registry(run)) records = registry->all();
  std::erase_if(records, [](const ModelRecord& r) { return quick_check(r).state != ModelState::Ready; });
  std::vector<Source> sources;
  for (const StarterPart& part : starter.parts) {
    if (const ModelRecord* here = record_for(part, starter, records)) {
      run.console.note(fmt::format("{} is already installed: {}", part.what, here->name));
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

}  // namespace

std::vector<ModelRecord> install_remote(Invocation& run, const std::string& text) {
  if (const std::string name = run.settings.text("name"); !name.empty()) check_model_name(name);
  check(!run.settings.flag("in-place"), "--in-place is for files that are here; {} is not", text);
  if (const Starter* starter = find_starter(text)) {
    const std::vector<Source> sources = sources_of(*starter, run);
    if (sources.empty()) run.console.note(fmt::format("all parts of {} are already installed", starter->name));
    return sources.empty() ? std::vector<ModelRecord>{} : install_sources(run, sources);
  }
  std::optional<Source> source = parse_source(text, hub_settings(run.environment).endpoint);
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
  if (run.settings.has("revision")) source->revision = run.settings.text("revision");
  return install_sources(run, {*source});
}

}  // namespace flux2
