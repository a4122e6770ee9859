#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "cli/command.h"
#include "hub/registry/describe.h"
#include "hub/registry/registry.h"

namespace flux2 {

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

// Installs something that is not on this machine: a starter set, a repository of the hub or a URL.
std::vector<ModelRecord> install_remote(Invocation& run, const std::string& source);

}  // namespace flux2
