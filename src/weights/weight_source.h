#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "weights/open_tensor.h"
#include "weights/shard.h"
#include "weights/stored_tensor.h"

namespace flux2 {

// Named tensors from one or more mapped files. Opening a tensor reads only its own bytes.
class WeightSource {
 public:
  // `description` names the source in messages. Throws BadFile when two tensors share a name.
  WeightSource(std::vector<StoredTensor> tensors, std::map<std::string, std::string> metadata, std::string description);

  const StoredTensor* find(std::string_view name) const;  // null when absent
  std::vector<std::string> names() const;                 // in file order
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& description() const { return description_; }
  uint64_t total_bytes() const;  // of all tensors

  // The tensor in host memory, or the shard's slice of it; a view of the mapping if alignment allows it.
  Tensor open(std::string_view name, const Shard& shard = {}) const;

 private:
  std::vector<StoredTensor> tensors_;
  std::vector<uint32_t> by_name_;  // indices into tensors_, sorted by name
  std::map<std::string, std::string> metadata_;
  std::string description_;
};

// `path` may be a .safetensors or .gguf file; one part of a series (…-00001-of-00010.safetensors), which stands for all of it; an
// index (….safetensors.index.json); or a folder that holds one of these. Weights that are quantised with the help of other
// tensors appear with their decoded values (quantised_values.h).
std::shared_ptr<const WeightSource> open_weights(const std::filesystem::path& path, const Log& log = {});

}  // namespace flux2
