#include "hub/registry/starter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "app/model_lists.h"
#include "base/text.h"
#include "cli/models/models.h"
#include "cli/table.h"

namespace flux2 {

namespace {

std::string about(const StarterPart& part) { return (part.exact ? "" : "≈ ") + byte_text(part.bytes); }

void print(Console& console, const Starter& s, const std::vector<ModelRecord>& records) {
  std::vector<std::vector<std::string>> rows;
  uint64_t to_fetch = 0;
  for (const StarterPart& part : s.parts) {
    const ModelRecord* here = record_for(part, s, records);
    if (!here) to_fetch += part.bytes;
    rows.push_back({"  " + std::string(name_of(part.type)), part.what, about(part),
                    part.gated ? part.licence + ", gated" : part.licence, here ? "installed: " + here->name : part.source});
  }
  console.result(fmt::format("{}: {}; {}", s.name, s.summary,
                             to_fetch == 0 ? "complete" : fmt::format("about {} to download", byte_text(to_fetch))));
  console.result(text_table(rows));
}

}  // namespace

int run_models_starter(Invocation& run) {
  check(run.positional.size() <= 1, "models starter takes one name");
  std::vector<Starter> shown = starters();
  if (!run.positional.empty()) {
    const Starter* one = find_starter(run.positional[0]);
    if (!one) {
      std::vector<std::string> names;
      for (const Starter& s : starters()) names.push_back(s.name);
      throw Error(ErrorCode::NotFound, fmt::format("unknown starter set: {}", run.positional[0]),
                  fmt::format("the nearest are {}", fmt::join(nearest_words(run.positional[0], names, 3), ", ")));
    }
    shown = {*one};
  }
  const std::vector<ModelRecord> records = ready_records(run);
  Json json = Json::array();
  for (const Starter& s : shown) {
    json.push_back(to_json(s, records));
    if (!run.console.json()) print(run.console, s, records);
  }
  if (run.console.json()) run.console.result(pretty(json));
  else run.console.note("`flux2 models install NAME` downloads the missing parts");
  return 0;
}

}  // namespace flux2
