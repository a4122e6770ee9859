#include <fmt/format.h>

#include "app/model_lists.h"
#include "base/text.h"
#include "cli/models/models.h"
#include "cli/table.h"

namespace flux2 {

namespace {

Json json_of(const Described& part) {
  Json json = to_json(part);
  json["hint"] = command_line_words(part.hint);
  return json;
}

void print(Console& console, const Described& part) {
  const ModelRecord& r = part.record;
  std::vector<std::vector<std::string>> rows = {{r.path.string()}};
  if (!part.usable() && r.family.empty() && r.variant.empty()) {
    rows.push_back({"  " + part.problem});
    if (!part.hint.empty()) rows.push_back({"  hint: " + command_line_words(part.hint)});
    return console.result(text_table(rows));
  }
  rows.push_back({fmt::format("  {}: {}{}{}", part.type, r.family, r.variant.empty() || r.family.empty() ? "" : " ", r.variant)});
  rows.push_back({fmt::format("  {}, {}{}{}, {}", r.format, r.quant, r.quant.empty() ? "" : ", ", files_text(r.files.size()),
                              byte_text(r.bytes))});
  rows.push_back({fmt::format("  confidence: {}", part.confidence)});
  for (const std::string& line : part.evidence) rows.push_back({"  evidence: " + line});
  if (!part.needs.empty()) rows.push_back({"  needs " + part.needs});
  if (part.usable()) rows.push_back({"  suggested name: " + r.name});
  else rows.push_back({"  cannot be used: " + part.problem});
  if (!part.usable() && !part.hint.empty()) rows.push_back({"  hint: " + command_line_words(part.hint)});
  console.result(text_table(rows));
}

}  // namespace

int run_models_identify(Invocation& run) {
  check(!run.positional.empty(), "models identify needs a file or folder");
  Json json = Json::array();
  for (const std::string& path : run.positional)
    for (const Described& part : identify(path, run.console.log())) {
      if (run.console.json()) json.push_back(json_of(part));
      else print(run.console, part);
    }
  if (run.console.json()) run.console.result(pretty(json));
  return 0;
}

}  // namespace flux2
