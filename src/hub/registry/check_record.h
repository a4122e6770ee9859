#pragma once

#include <string>

#include "hub/registry/copy_files.h"
#include "hub/registry/model_record.h"
#include "hub/registry/registry.h"

namespace flux2 {

struct QuickCheck {
  ModelState state = ModelState::Ready;
  std::string note;  // what is wrong
};

// Quick check: compares the files of a record with their recorded sizes. A record that check_record() found damaged stays damaged
// until the next check_record().
QuickCheck quick_check(const ModelRecord& record);

// The same, but ignores earlier results of check_record().
QuickCheck check_sizes(const ModelRecord& record);

struct CheckOptions {
  bool values = false;  // read every weight and check that all are finite numbers
  bool quick = false;   // trust the hash of a file that has not changed since it was computed
  CopyProgress progress = {};
};

// Checks sizes, hashes (computed and kept when there are none yet), the header, and on request the values. Stores the result and
// returns the updated record; `note` says what is wrong. What others change in the record meanwhile is kept.
ModelRecord check_record(Registry& registry, ModelRecord record, const CheckOptions& options, const Log& log = {});

// The hash of a record with several files: of their hashes and names.
std::string hash_of_files(const std::vector<RecordedFile>& files);

// Tensors of the part that hold something other than numbers, with the index of the first; at most ten are named.
std::vector<std::string> find_bad_values(const std::filesystem::path& path, const CopyProgress& progress, const Log& log = {});

}  // namespace flux2
