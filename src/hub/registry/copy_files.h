#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "hub/registry/model_record.h"

namespace flux2 {

struct PlannedCopy {
  std::filesystem::path from, to;
  uint64_t bytes = 0;
};

// The model files at a path, a file with the rest of its series or a folder with all below it, and where they go: under `target`,
// the new location of the path itself. Hidden files and files that do not belong to models are skipped; links are followed.
std::vector<PlannedCopy> plan_copies(const std::filesystem::path& from, const std::filesystem::path& target);

// Receives the number of bytes done and the total. Returning false ends the work with Cancelled.
using CopyProgress = std::function<bool(uint64_t done, uint64_t total, const std::string& file)>;

// Whether the file is there already: it has the size and the modification time of the original, or the same bytes. Reading both
// files may take minutes, so the progress counts their bytes. A copy that proves equal gets the time, and is not read again.
bool is_copied(const PlannedCopy& copy, const CopyProgress& progress = {});

// Copies the files that are not there yet, with their modification times, and replaces those that have other content. A file gets
// its name only when it is complete. After an interruption the next attempt continues after the last 64 MB that were flushed to
// disk. Throws CannotWrite before anything is written if what is missing plus ten per cent does not fit on the disk. Returns the
// files with their hashes.
std::vector<RecordedFile> copy_files(const std::vector<PlannedCopy>& copies, const CopyProgress& progress);

// SHA-256 of a file; the progress counts its bytes.
std::string hash_file(const std::filesystem::path& file, const CopyProgress& progress = {});

}  // namespace flux2
