#pragma once

#include <filesystem>
#include <vector>

#include "hub/registry/model_record.h"

namespace flux2 {

// The files that make up a part: one file, all of a series, or what belongs to it in its folder (weights with their index
// and configuration, or a tokenizer's files); with a transformer also the model_index.json that describes it. Sizes are
// filled in, hashes are not. Nothing throws for what is missing.
std::vector<RecordedFile> part_files(const std::filesystem::path& path, ModelType type);

// Whether a file of that name may belong to a model: weights, JSON, texts of tokenizers.
bool is_model_file(const std::filesystem::path& path);

}  // namespace flux2
