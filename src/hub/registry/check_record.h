#pragma once

#include "hub/registry/copy_files.h"
#include "hub/registry/glance.h"
#include "hub/registry/registry.h"

namespace flux2 {

struct CheckOptions {
  bool values = false;  // read every weight: all must be numbers
  bool quick = false;   // trust the hash of a file that has not changed since it was computed
  CopyProgress progress = {};
};

// A closer look: sizes, hashes (computed and kept when there are none yet), the header, and if asked for the values.
// Stores what it found and returns the record as it is now; `note` says what is wrong.
ModelRecord check_record(Registry& registry, ModelRecord record, const CheckOptions& options, const Log& log = {});

// The hash of a record with several files: of their hashes and names.
std::string hash_of_files(const std::vector<RecordedFile>& files);

// Tensors of the part that hold something other than numbers, with the first such place; at most ten are named.
std::vector<std::string> find_bad_values(const std::filesystem::path& path, const CopyProgress& progress, const Log& log = {});

}  // namespace flux2
