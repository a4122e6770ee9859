#pragma once

#include <filesystem>

#include "hub/registry/model_record.h"

namespace flux2 {

// The record with its files at another path, for files that were moved by hand. Key, name, settings, cover and hashes stay;
// hashes only if the sizes of the files are the same. Throws NotFound if nothing is there, and Incompatible unless it is the same
// kind of model: type, family, sizes of the network, and for an adapter its rank. The registry is not changed.
ModelRecord relocated(const ModelRecord& record, const std::filesystem::path& path, const std::filesystem::path& data_folder,
                      const Log& log = {});

}  // namespace flux2
