#pragma once

#include <filesystem>
#include <vector>

#include "hub/registry/model_record.h"

namespace flux2 {

// The files of one part of a model: a single file, all shards, or the part's files in its folder (weights with their index and
// configuration, or the files of a tokenizer). For a transformer, also the model_index.json that describes it. Fills in sizes,
// but not hashes. Does not throw if a file is missing.
std::vector<RecordedFile> part_files(const std::filesystem::path& path, ModelType type);

// Whether a file with this name can belong to a model: weights, JSON, or a text file of a tokenizer.
bool is_model_file(const std::filesystem::path& path);

}  // namespace flux2
