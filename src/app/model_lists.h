#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "app/context.h"
#include "app/settings.h"
#include "base/error.h"
#include "base/json.h"
#include "hub/registry/describe.h"
#include "hub/registry/orphan_files.h"
#include "hub/registry/registry.h"
#include "hub/registry/starter.h"

namespace flux2 {

// What a scan found, and the record that it has already.
struct ScannedPart {
  Described part;
  std::string key, name;  // of its record; empty when it has none
};

// Everything below the folders that is a model or looks like one. With `add`, usable parts are registered where they are; those
// that are registered already are updated. `at` as in scan_folder().
struct Scan {
  std::vector<ScannedPart> parts;
  size_t added = 0;
};
Scan scan_models(const AppContext& context, const std::vector<std::filesystem::path>& folders, bool add,
                 const std::function<bool(const std::filesystem::path&)>& at = {});
Json to_json(const ScannedPart& found);

// A recognised part with its evidence, without what only a record has. The hint is added by the front end in its own words.
Json to_json(const Described& part);

// A starter set, with what is installed of it already.
Json to_json(const Starter& starter, const std::vector<ModelRecord>& ready);
std::vector<ModelRecord> ready_records(const AppContext& context);  // whose files are all there

// A registered model whose files are gone, or that lacks a part.
struct MissingModel {
  ModelRecord record;
  std::string state, note;
  Hint hint;
};
std::vector<MissingModel> missing_models(const AppContext& context, const RequestSpec& spec = {});

// Models and partial files in the model folders that are not registered.
struct Orphan {
  std::filesystem::path path;
  std::string type, variant, quant, state, problem;
  uint64_t bytes = 0;
};
std::vector<Orphan> orphans(const AppContext& context);
Json to_json(const Orphan& orphan);

// What may be deleted: orphan_files() without those in use. Throws if the registry cannot be read, since everything would look
// unused then.
std::vector<OrphanFiles> deletable_orphans(const AppContext& context);
Json to_json(const OrphanFiles& files);

}  // namespace flux2
