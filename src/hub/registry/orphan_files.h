#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "hub/registry/model_record.h"

namespace flux2 {

// The folder below models/ of the data folder where files from plain addresses wait until it is known what they are.
constexpr const char* kIncomingFolder = ".incoming";

// Whether the name is that of a file that an interrupted copy or download left. Notes about such files have other names.
bool is_partial_file(const std::filesystem::path& file);

// Whether an installation that is under way, of this process or another, is writing the partial file or into the folder of
// .incoming.
bool is_being_written(const std::filesystem::path& path);

// A file or folder in the models folder that belongs to no record.
struct OrphanFiles {
  std::filesystem::path path;
  bool is_folder = false;
  bool is_partial = false;  // left by an interrupted installation; a folder: in .incoming
  bool in_use = false;      // an installation that is under way is writing it
  uint64_t files = 0;       // in the folder and the folders below it
  uint64_t bytes = 0;
};

// What is in models/ of the data folder and belongs to no record, by path. A folder without a file of a record is one entry,
// except .incoming and the folders for one kind of model (loras, vae, …), whose entries are listed one by one. Next to a file of
// a record, only weights and partial files are listed: a README or a configuration there belongs to that record. Links are not
// followed; a link is a file without bytes.
std::vector<OrphanFiles> orphan_files(const std::vector<ModelRecord>& records, const std::filesystem::path& data_folder);

// Deletes entries of that list, then folders that became empty. Throws InvalidArgument, and deletes nothing, if a path is not in
// the list or if an installation is writing it.
std::vector<OrphanFiles> remove_orphans(const std::vector<std::filesystem::path>& paths, const std::vector<ModelRecord>& records,
                                        const std::filesystem::path& data_folder);

}  // namespace flux2
