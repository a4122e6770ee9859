#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <ctime>

#include "app/context.h"
#include "app/registry_access.h"
#include "base/text.h"
#include "cli/models/models.h"
#include "cli/table.h"
#include "hub/registry/check_record.h"

namespace flux2 {

int run_models_info(Invocation& run) {
  check(run.positional.size() == 1, "models info needs the name or key of one model");
  const Registry registry = open_registry(run);
  for (const auto& bundled : bundled_models(run.environment))
    if (run.positional[0] == bundled.filename() && !registry.find(run.positional[0]))
      throw Error(ErrorCode::NotFound, run.positional[0] + " is a bundled model, which is not registered",
                  Hint("{0} describes it", {run_command("inspect " + bundled.string())}));
  ModelRecord r = record_named(registry, run.positional[0]);
  const QuickCheck check = quick_check(r);
  r.state = check.state, r.note = check.note;
  if (run.console.json()) {
    run.console.result(pretty(to_json(r)));
    return 0;
  }
  std::vector<std::vector<std::string>> rows;
  const auto row = [&](const char* what, const std::string& text) {
    if (!text.empty()) rows.push_back({what, text});
  };
  row("name", r.name);
  row("key", r.key);
  row("type", name_of(r.type));
  row("family", r.family);
  row("variant", r.variant);
  row("format", r.format);
  row("quant", r.quant);
  row("state", r.note.empty() ? name_of(r.state) : fmt::format("{}: {}", name_of(r.state), r.note));
  row("path", r.path.string());
  row("source", origin_text(r));
  row("size", fmt::format("{} in {}", byte_text(r.bytes), files_text(r.files.size())));
  row("sha256", r.sha256.empty() ? "not computed yet; `flux2 models verify` does" : r.sha256);
  row("licence", r.license + (r.gated ? ", to be accepted before downloading" : ""));
  if (r.type == ModelType::Main)
    row("geometry", fmt::format("width {}, {} double and {} single blocks, text width {}", r.probe.hidden, r.probe.double_blocks,
                                r.probe.single_blocks, r.probe.context_dim));
  else if (r.type == ModelType::ImageEncoder)
    row("geometry", fmt::format("width {}, projection {}", r.probe.hidden, r.probe.context_dim));
  else if (r.type == ModelType::ImagePrompt)
    row("geometry", fmt::format("for a width of {}, reads vectors of {} values", r.probe.hidden, r.probe.context_dim));
  else if (r.probe.hidden > 0) row("geometry", fmt::format("width {}", r.probe.hidden));
  if (r.probe.distilled) row("training", *r.probe.distilled ? "distilled" : "base");
  row("triggers", fmt::format("{}", fmt::join(r.triggers, ", ")));
  row("description", r.description);
  const Json defaults = to_json(r.defaults), components = to_json(r.components);
  for (const auto& [key, value] : defaults.items()) row(key.c_str(), value.dump());
  for (const auto& [key, value] : components.items()) {
    const auto part = registry.find(value.get<std::string>());
    row(key.c_str(), part ? part->name : value.get<std::string>() + " (no longer registered)");
  }
  std::vector<std::string> related;
  for (const std::string& key : r.related)
    if (const auto other = registry.find(key)) related.push_back(other->name);
  row("related", fmt::format("{}", fmt::join(related, ", ")));
  const auto since = static_cast<std::time_t>(r.installed_at);
  row("registered", fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(since)));
  run.console.result(text_table(rows));
  for (const RecordedFile& f : r.files) run.console.result(fmt::format("  {}  {}", f.path.string(), byte_text(f.bytes)));
  return 0;
}

}  // namespace flux2
