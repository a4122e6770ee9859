#include "cli/models/install.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "app/install_model.h"
#include "base/text.h"
#include "cli/models/models.h"
#include "cli/table.h"
#include "cli/user_input.h"

namespace flux2 {

using namespace std::chrono_literals;

namespace {

constexpr uint64_t kWorthAsking = 1'000'000'000;  // bytes, where somebody sits in front of it

void list_copies(Invocation& run, const std::vector<PlannedCopy>& copies, Json& json) {
  std::vector<std::vector<std::string>> rows = {{"SIZE", "FROM", "TO"}};
  for (const PlannedCopy& c : copies) {
    rows.push_back({byte_text(c.bytes), c.from.string(), c.to.string()});
    json.push_back({{"bytes", c.bytes}, {"from", c.from.string()}, {"to", c.to.string()}});
  }
  if (!run.console.json()) run.console.result(text_table(rows));
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

void list_plans(Invocation& run, const std::vector<FetchPlan>& plans, Json& json) {
  std::vector<std::vector<std::string>> rows = {{"SIZE", "", "FROM", "TO"}};
  for (const FetchPlan& plan : plans) {
    if (!plan.reason.empty()) run.console.note(plan.reason);
    for (const PlannedFile& f : plan.files) {
      rows.push_back({byte_text(f.size), f.present ? "here" : "", f.url, f.target.string()});
      json.push_back(
          {{"bytes", f.size}, {"present", f.present}, {"url", f.url}, {"target", f.target.string()}, {"etag", f.etag}});
    }
  }
  if (!run.console.json()) run.console.result(text_table(rows));
}

// `listed`: receives the files of a dry run.
InstallHooks hooks_for(Invocation& run, Json& listed) {
  InstallHooks hooks;
  const bool dry = run.settings.flag("dry-run");
  hooks.cancelled = [] { return interrupt_signal() != 0; };
  hooks.note = [&run](const std::string& text) { run.console.note(text); };
  hooks.warn = [&run](const std::string& text) { run.console.warn(text); };
  hooks.copies_planned = [&run, &listed, dry](const std::vector<PlannedCopy>& copies) {
    if (dry && !copies.empty()) list_copies(run, copies, listed);
    return !dry;
  };
  hooks.planned = [&run, &listed, dry](const std::vector<FetchPlan>& plans) {
    if (dry) {
      list_plans(run, plans, listed);
      return false;
    }
    uint64_t missing = 0;
    for (const FetchPlan& plan : plans) missing += plan.missing_bytes();
    if (missing > kWorthAsking && ::isatty(STDIN_FILENO) != 0 &&
        !confirmed(run, fmt::format("Fetch {} into {}?", byte_text(missing), plans[0].root.string())))
      throw Error(ErrorCode::InvalidArgument, "nothing was fetched", "--dry-run lists the files; --yes does not ask");
    return true;
  };
  hooks.fetching = [show = progress_for(run)](size_t, const FetchStatus& status) { show(status); };
  hooks.copying = [&run](uint64_t done, uint64_t total, const std::string& file) { return show_bytes(run, file, done, total); };
  hooks.registering = [&run] { run.console.clear_status(); };
  return hooks;
}

std::vector<ModelRecord> install_or_list(Invocation& run, const std::string& source, Json& listed) {
  AppContext context = run;
  context.log = run.console.log();
  return install_model(context,
                       {.source = source,
                        .name = run.settings.text("name"),
                        .revision = run.settings.text("revision"),
                        .token = run.settings.text("token"),
                        .local_dir = run.settings.text("local-dir"),
                        .in_place = run.settings.flag("in-place"),
                        .offline = run.settings.flag("offline")},
                       hooks_for(run, listed));
}

}  // namespace

std::vector<ModelRecord> install_from(Invocation& run, const std::string& source) {
  Json listed = Json::array();
  return install_or_list(run, source, listed);
}

int run_models_install(Invocation& run) {
  check(!run.positional.empty(),
        "models install needs something to install: a file, a folder, a starter's name, owner/repository or an address");
  check(run.positional.size() == 1 || !run.settings.has("name"), "--name is for one model at a time");
  std::vector<ModelRecord> installed;
  Json json = Json::array();
  for (const std::string& source : run.positional) {
    const auto records = install_or_list(run, source, json);
    installed.insert(installed.end(), records.begin(), records.end());
  }
  for (const ModelRecord& r : installed) {
    json.push_back(to_json(r));
    if (!run.console.json()) run.console.result(fmt::format("{}  {} {} in {}", r.name, name_of(r.type), r.key, r.path.string()));
  }
  if (run.console.json()) run.console.result(pretty(json));
  return 0;
}

}  // namespace flux2
