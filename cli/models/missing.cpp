#include "app/model_lists.h"
#include "base/text.h"
#include "cli/models/models.h"
#include "cli/table.h"

namespace flux2 {

int run_models_missing(Invocation& run) {
  refuse_arguments(run);
  Json json = Json::array();
  std::vector<std::vector<std::string>> rows = {{"NAME", "STATE", ""}};
  for (const MissingModel& m : missing_models(run, run.spec())) {
    rows.push_back({m.record.name, m.state, m.note});
    if (!m.hint.empty()) rows.push_back({"", "", "hint: " + command_line_words(m.hint)});
    json.push_back({{"key", m.record.key},
                    {"name", m.record.name},
                    {"type", name_of(m.record.type)},
                    {"path", m.record.path.string()},
                    {"state", m.state},
                    {"note", m.note},
                    {"hint", command_line_words(m.hint)}});
  }
  if (run.console.json()) run.console.result(pretty(json));
  else if (!json.empty()) run.console.result(text_table(rows));
  else run.console.note("nothing is missing");
  return 0;
}

}  // namespace flux2
