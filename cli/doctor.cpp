#include <fmt/format.h>
#include <sys/sysinfo.h>

#include "app/context.h"
#include "app/model_choice.h"
#include "app/safety.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/component_text.h"
#include "engine/engine.h"
#include "engine/gpu_ranks.h"
#include "hub/recognise.h"
#include "hub/registry/registry.h"

namespace flux2 {

namespace fs = std::filesystem;

namespace {

double gib(uint64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

struct Report {
  Json checks = Json::array();
  bool all_good = true;

  void add(const std::string& what, bool good, const std::string& text, bool needed = true) {
    checks.push_back({{"check", what}, {"ok", good}, {"text", text}});
    all_good = all_good && (good || !needed);
  }
};

void check_disk(Report& report, const fs::path& folder) {
  fs::path existing = folder;
  std::error_code failed;
  while (!existing.empty() && !fs::exists(existing, failed) && existing.has_parent_path() && existing != existing.parent_path())
    existing = existing.parent_path();
  const fs::space_info space = fs::space(existing.empty() ? "." : existing, failed);
  if (failed) report.add("disk", false, fmt::format("{}: {}", folder.string(), failed.message()));
  else report.add("disk", true, fmt::format("{}: {:.1f} GiB free", folder.string(), gib(space.available)));
}

// Opens every part's header; a truncated or foreign file shows here.
void check_model(Report& report, const ModelFiles& files) {
  for (const fs::path& part : {files.transformer, files.vae, files.text_encoder, files.tokenizer}) {
    if (part.empty()) continue;
    try {
      const Recognition recognition = recognise(part);
      std::string what, problem;
      for (const Component& c : recognition.components) {
        what += (what.empty() ? "" : ", ") + component_text(c);
        if (!c.usable()) problem = c.problem;
      }
      report.add("part", problem.empty(), fmt::format("{}: {}", part.string(), problem.empty() ? what : problem));
    } catch (const Error& e) {
      report.add("part", false, e.what());
    }
  }
}

}  // namespace

int run_doctor(Invocation& run) {
  if (!run.positional.empty())
    throw Error(ErrorCode::InvalidArgument, "doctor takes no arguments",
                Hint("{0} checks a model", {run_command("doctor -m " + printable(run.positional[0]))}));
  Report report;
  for (const DeviceReport& device : list_devices())
    report.add("device", device.usable, device.name + ": " + device.description, device.name == "cpu");
  if (gpu_is_there()) {
    const GpuSums sums = gpu_sums();
    report.add("several GPUs", sums.problem.empty(),
               sums.problem.empty() ? "NCCL " + sums.version : sums.problem + ": training sums gradients on the host", false);
  }
  struct sysinfo system {};
  if (::sysinfo(&system) == 0) {
    const uint64_t unit = system.mem_unit;
    report.add("memory", true,
               fmt::format("{:.1f} GiB, {:.1f} GiB unused", gib(system.totalram * unit),
                           gib((system.freeram + system.bufferram) * unit)));
  }
  const fs::path data = data_folder(run.environment);
  if (data.empty()) report.add("data folder", false, "neither FLUX2_HOME nor HOME is set", false);
  else check_disk(report, data);
  if (!toml_available()) report.add("configuration", false, "this build has no TOML reader: config files are not read", false);

  try {
    if (!registry_available()) report.add("registry", false, "this build has no SQLite: models cannot be registered", false);
    else if (const auto registry = Registry::existing(data))
      report.add("registry", true, fmt::format("{} model parts are registered", registry->all().size()));
  } catch (const Error& e) {
    report.add("registry", false, e.what());
  }

  const fs::path bundled = bundled_model(run.environment);
  report.add("bundled model", !bundled.empty(), bundled.empty() ? "not found" : bundled.string(), false);
  try {
    const ModelFiles files = locate_model(model_query(run.spec(), run), run.console.log());
    report.add("model", true, fmt::format("{}{}", files.id, files.bundled ? " (bundled)" : ""));
    check_model(report, files);
  } catch (const Error& e) {
    const std::string hint = command_line_words(e.hint());
    report.add("model", false, e.what() + (hint.empty() ? "" : "; " + hint));
  }

  if (run.safety && run.safety->settings().images != SafetySettings::Images::Off) {
    try {
      const fs::path file = find_nsfw_model(run.safety->settings().nsfw_model, run);
      const Recognition found = recognise(file);
      report.add("safety", true,
                 fmt::format("{}: {}", file.string(), component_text(required_part(found, ComponentKind::Classifier))));
    } catch (const Error& e) {
      report.add("safety", false, std::string("images are checked, but ") + e.what());
    }
  }

  if (run.console.json()) {
    run.console.result(
        Json{{"ok", report.all_good}, {"checks", report.checks}}.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    for (const Json& check : report.checks)
      run.console.result(fmt::format("{} {:<14} {}", check["ok"].get<bool>() ? "ok  " : "--  ", check["check"].get<std::string>(),
                                     check["text"].get<std::string>()));
    run.console.result(report.all_good ? "no problems found" : "problems were found, see above");
  }
  return report.all_good ? 0 : 4;
}

}  // namespace flux2
