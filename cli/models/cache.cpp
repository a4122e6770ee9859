#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>

#include "app/picture_maker.h"
#include "base/folder_limit.h"
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

// Everything that the program keeps on disk to start faster.
struct Caches {
  std::vector<QuantisedEntry> weights;
  std::vector<FolderFile> texts;

  size_t files() const { return weights.size() + texts.size(); }
  uint64_t bytes() const {
    uint64_t sum = text_bytes();
    for (const QuantisedEntry& e : weights) sum += e.bytes;
    return sum;
  }
  uint64_t text_bytes() const {
    uint64_t sum = 0;
    for (const FolderFile& file : texts) sum += static_cast<uint64_t>(file.bytes);
    return sum;
  }
};

std::string local_minute(std::filesystem::file_time_type time) {
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(seconds_of(time)));
}

std::string utc_second(std::filesystem::file_time_type time) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(seconds_of(time)));
}

void print(Console& console, const Caches& caches) {
  if (caches.files() == 0) return console.result("the cache is empty");
  std::vector<std::vector<std::string>> rows = {{"source", "part", "type", "size", "last used"}};
  for (const QuantisedEntry& e : caches.weights)
    rows.push_back({e.source.empty() ? "(damaged)" : e.source, e.part, e.quant, byte_text(e.bytes), local_minute(e.used)});
  if (!caches.texts.empty())
    rows.push_back({fmt::format("encoded prompts: {}", caches.texts.size()), "text states", "", byte_text(caches.text_bytes()),
                    local_minute(caches.texts.back().changed)});
  rows.push_back({"total", "", "", byte_text(caches.bytes()), ""});
  console.result(text_table(rows));
}

Json json_of(const Caches& caches) {
  Json json = Json::array();
  for (const QuantisedEntry& e : caches.weights)
    json.push_back({{"path", e.path.string()},
                    {"source", e.source},
                    {"part", e.part},
                    {"quant", e.quant},
                    {"version", e.version},
                    {"bytes", e.bytes},
                    {"last_used", utc_second(e.used)}});
  for (const FolderFile& file : caches.texts)
    json.push_back(
        {{"path", file.path.string()}, {"part", "text states"}, {"bytes", file.bytes}, {"last_used", utc_second(file.changed)}});
  return json;
}

void delete_cached(const std::filesystem::path& path) {
  if (std::error_code failure; !std::filesystem::remove(path, failure) && failure)
    fail(ErrorCode::CannotWrite, "cannot delete {}: {}", path.string(), failure.message());
}

}  // namespace

int run_models_cache(Invocation& run) {
  const std::string action = run.positional.empty() ? "list" : run.positional[0];
  check(run.positional.size() <= 1 && (action == "list" || action == "clear"), "models cache needs one action: list or clear");
  const Caches caches{list_quantised(quant_cache_folder(run)), files_with_ending(text_cache_folder(run), ".safetensors")};
  if (action == "clear") {
    for (const QuantisedEntry& e : caches.weights) delete_cached(e.path);
    for (const FolderFile& file : caches.texts) delete_cached(file.path);
  }
  if (run.console.json()) run.console.result(pretty(json_of(caches)));
  else if (action == "list") print(run.console, caches);
  else run.console.result(fmt::format("deleted {} ({})", files_text(caches.files()), byte_text(caches.bytes())));
  return 0;
}

}  // namespace flux2
