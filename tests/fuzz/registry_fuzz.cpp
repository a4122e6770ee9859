#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "hub/registry/check_record.h"
#include "hub/registry/registry.h"
#include "hub/registry/remove_files.h"
#include "tests/fuzz/target.h"

namespace {

namespace fs = std::filesystem;

// In memory where the system has such a place: every input is a file that SQLite opens, locks and syncs.
const fs::path& folder() {
  static const fs::path path = [] {
    const fs::path base = fs::is_directory("/dev/shm") ? "/dev/shm" : fs::temp_directory_path();
    const fs::path own = base / ("flux2-registry-fuzz-" + std::to_string(::getpid()));
    fs::create_directories(own);
    return own;
  }();
  return path;
}

void write(std::string_view bytes) {
  for (const char* tail : {"-wal", "-shm", "-journal"}) fs::remove(folder() / (std::string("flux2.db") + tail));
  std::ofstream(folder() / "flux2.db", std::ios::binary | std::ios::trunc) << bytes;
}

// A registry whose one record is made of the input: odd names, paths and texts come back as they went in.
void round_trip(std::string_view bytes) {
  write({});
  const auto piece = [&](size_t i) { return std::string(bytes.substr(bytes.size() * i / 8, bytes.size() / 8)); };
  flux2::ModelRecord r;
  r.name = piece(0);
  r.type = static_cast<flux2::ModelType>(bytes.size() % 7);
  r.variant = piece(1), r.quant = piece(2), r.description = piece(3), r.note = piece(4);
  r.triggers = {piece(5), piece(6)};
  r.path = fs::path("/m") / piece(7);
  r.files = {{r.path, bytes.size(), piece(1)}};
  flux2::Registry registry(folder());
  const flux2::ModelRecord stored = registry.add(r);
  const auto found = registry.find(stored.key);
  if (!found || found->name != stored.name || found->variant != r.variant || found->description != r.description)
    flux2_fuzz::broken();
  if (registry.all().size() != 1) flux2_fuzz::broken();
  if (!registry.remove(stored.key)) flux2_fuzz::broken();
}

}  // namespace

// Any bytes are refused with an Error or are a registry that can be read, looked at and changed; any field values are
// refused or come back. What would be deleted lies in the data folder's models/ or in a hub cache.
FUZZ_TARGET(registry) {
  if (size == 0) return;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    if (data[0] % 4 == 0) {
      round_trip(bytes);
      return;
    }
    write(bytes);
    flux2::Registry registry(folder());
    const auto records = registry.all();
    for (const flux2::ModelRecord& r : records) {
      flux2::quick_check(r);
      flux2::to_json(r).dump(-1, ' ', false, flux2::Json::error_handler_t::replace);
      try {
        for (const fs::path& file : flux2::plan_removal(r, records, folder()).files)
          if (!file.string().starts_with((folder() / "models").string()) && file.string().find("models--") == std::string::npos)
            flux2_fuzz::broken();
      } catch (const flux2::Error&) {}
    }
    flux2::ModelRecord extra;
    extra.name = "extra", extra.path = "/m/extra";
    registry.add(extra);
  } catch (const flux2::Error&) {}
}
