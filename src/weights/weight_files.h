#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "weights/stored_tensor.h"

namespace flux2 {

// What a path given by the user refers to: one file, a series of parts, an index with its shards, or a folder.
struct WeightFiles {
  std::vector<StoredTensor> tensors;
  std::map<std::string, std::string> metadata;  // of the first file
  std::string description;
};

// A file name of the form STEM-00002-of-00010.safetensors (or .gguf).
struct SeriesName {
  std::string stem;
  size_t digits = 0;  // of the part's own number
  int part = 0, count = 0;
  std::string tail;  // "-of-00010.safetensors"

  std::string name_of(int i) const;  // of another part
};
std::optional<SeriesName> series_name(const std::filesystem::path& path);  // nothing for other names

WeightFiles read_weight_files(const std::filesystem::path& path, const Log& log);

}  // namespace flux2
