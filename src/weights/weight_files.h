#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "weights/stored_tensor.h"

namespace flux2 {

// What a path given by a person stands for: one file, a series of parts, an index with its shards, or a folder.
struct WeightFiles {
  std::vector<StoredTensor> tensors;
  std::map<std::string, std::string> metadata;  // of the first file
  std::string description;
};

WeightFiles read_weight_files(const std::filesystem::path& path, const Log& log);

}  // namespace flux2
