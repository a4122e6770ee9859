#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>

#include "app/picture_maker.h"
#include "base/text.h"
#include "cli/models/models.h"
#include "cli/table.h"
#include "weights/quantised_cache.h"

namespace flux2 {

namespace {

std::time_t seconds_of(std::filesystem::file_time_type time) {
  const auto there = std::chrono::file_clock::to_sys(time);
  return std::chrono::system_clock::to_time_t(std::chrono::time_point_cast<std::chrono::system_clock::duration>(there));
}

uint64_t total_bytes(const std::vector<QuantisedEntry>& entries) {
  uint64_t sum = 0;
  for (const QuantisedEntry& e : entries) sum += e.bytes;
  return sum;
}

void print(Console& console, const std::vector<QuantisedEntry>& entries) {
  if (entries.empty()) return console.result("the cache is empty");
  std::vector<std::vector<std::string>> rows = {{"source", "part", "type", "size", "last used"}};
  for (const QuantisedEntry& e : entries)
    rows.push_back({e.source.empty() ? "(damaged)" : e.source, e.part, e.quant, byte_text(e.bytes),
                    fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(seconds_of(e.used)))});
  rows.push_back({"total", "", "", byte_text(total_bytes(entries)), ""});
  console.result(text_table(rows));
}

Json json_of(const std::vector<QuantisedEntry>& entries) {
  Json json = Json::array();
  for (const QuantisedEntry& e : entries)
    json.push_back({{"path", e.path.string()},
                    {"source", e.source},
                    {"part", e.part},
                    {"quant", e.quant},
                    {"version", e.version},
                    {"bytes", e.bytes},
                    {"last_used", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(seconds_of(e.used)))}});
  return json;
}

}  // namespace

int run_models_cache(Invocation& run) {
  const std::string action = run.positional.empty() ? "list" : run.positional[0];
  check(run.positional.size() <= 1 && (action == "list" || action == "clear"), "models cache needs one action: list or clear");
  const auto entries = list_quantised(quant_cache_folder(run));
  if (action == "clear") {
    for (const QuantisedEntry& e : entries)
      if (std::error_code failure; !std::filesystem::remove(e.path, failure) && failure)
        fail(ErrorCode::CannotWrite, "cannot delete {}: {}", e.path.string(), failure.message());
  }
  if (run.console.json()) run.console.result(pretty(json_of(entries)));
  else if (action == "list") print(run.console, entries);
  else run.console.result(fmt::format("deleted {} ({})", files_text(entries.size()), byte_text(total_bytes(entries))));
  return 0;
}

}  // namespace flux2
