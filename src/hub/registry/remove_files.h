#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "hub/registry/model_record.h"

namespace flux2 {

// The files that would be deleted with a record, and those that would be kept, with the reason.
struct Removal {
  std::vector<std::filesystem::path> files;  // to be deleted, links of a hub cache included
  std::vector<std::filesystem::path> blobs;  // of a hub cache, once no other snapshot needs them
  std::vector<std::string> kept;             // sentences: files that stay, and why
  uint64_t bytes = 0;                        // freed
};

// The files of a record that this program may delete: those in the data folder's models/ and in a hub cache, as far as no
// other record needs them. Throws InvalidArgument when the record lies elsewhere: those files are the user's own.
Removal plan_removal(const ModelRecord& record, const std::vector<ModelRecord>& all, const std::filesystem::path& data_folder);

// Deletes them, then folders that became empty below the data folder or the snapshot.
void remove_files(const Removal& removal, const std::filesystem::path& data_folder);

// Deletes the folder and those above it as far as they are empty, up to but not including `top`.
void remove_empty_folders(std::filesystem::path folder, const std::filesystem::path& top);

}  // namespace flux2
