#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "app/context.h"
#include "hub/registry/copy_files.h"
#include "hub/registry/describe.h"
#include "hub/registry/registry.h"
#include "hub/remote/fetch.h"

namespace flux2 {

// What to install, and how.
struct InstallRequest {
  std::string source;               // a file or folder, a starter set, a repository of the hub or an address
  std::string name;                 // of the first part, a transformer if there is one; empty: by what it is
  std::string revision;             // of a repository; empty: as the source says
  std::string token;                // for the hub; empty: the stored one
  std::filesystem::path local_dir;  // downloads go there instead of the shared cache; empty: the cache
  bool never_a_path = false;        // the source is not looked for on this machine
  bool in_place = false;            // a file or folder is used where it is instead of being copied
  bool offline = false;
  bool public_addresses = false;  // plain addresses must not lead into the network of this machine
  // Files of a repository that are downloaded from their first byte, whatever is there of them.
  std::vector<std::string> from_start = {};
  bool all_from_start = false;  // all that are incomplete
};

// What a front end sees of it. All may be empty.
struct InstallHooks {
  std::function<bool()> cancelled = {};
  // Before anything is downloaded or copied; returning false ends the installation without a result.
  std::function<bool(const std::vector<FetchPlan>&)> planned = {};
  std::function<bool(const std::vector<PlannedCopy>&)> copies_planned = {};
  std::function<void(size_t plan, const FetchStatus&)> fetching = {};
  CopyProgress copying = {};
  std::function<void()> registering = {};                        // all files are here
  std::function<void(const std::string&)> note = {}, warn = {};  // for the user
};

// Copies or downloads a model and registers it. Returns the records of its parts.
std::vector<ModelRecord> install_model(const AppContext& context, const InstallRequest& request, const InstallHooks& hooks = {});

// The hub as this machine reaches it: the environment, then the token that was stored in the data folder.
HubSettings hub_settings_of(const AppContext& context, const std::string& token = {});

// The token in the data folder, readable by its owner alone. Storing an empty one deletes it.
std::string stored_hub_token(const AppContext& context);
void store_hub_token(const AppContext& context, const std::string& token);

// How installed parts are registered, whether they were copied or downloaded.
struct NewParts {
  std::string name;  // of the first part, a transformer if there is one; empty: by what it is
  bool in_place = true;
  ModelSource source;               // kind empty: where they lie
  std::vector<RecordedFile> files;  // whose hashes are known
};
std::vector<ModelRecord> register_parts(Registry& registry, std::vector<Described> parts, const NewParts& how);

// Where files of a type are kept in a model folder: the role folders other tools use too.
const char* role_folder(ModelType type);

}  // namespace flux2
