#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace flux2 {

// The contents of an X.safetensors.index.json.
struct WeightIndex {
  std::map<std::string, std::vector<std::string>> tensors_of_file;  // file name relative to the index → tensors, sorted
  std::optional<uint64_t> total_size;                               // as declared; may be wrong
};

// Throws BadFile when the text is not such an index or names a file outside the folder of the index.
WeightIndex parse_weight_index(std::string_view text);
WeightIndex read_weight_index(const std::filesystem::path& path);

}  // namespace flux2
