#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/context.h"
#include "base/json.h"
#include "engine/engine.h"
#include "hub/model_files.h"
#include "pipeline/progress.h"
#include "train/data/cache_model.h"
#include "train/data/make_caches.h"

namespace flux2 {

// A .json or .toml file. TOML needs a build with toml++; without it the error says that JSON works.
Json read_json_or_toml(const std::filesystem::path& path);

// A dataset file together with the model that its caches are made for.
struct TrainingDataset {
  std::filesystem::path file;
  std::vector<DatasetConfig> configs;
  CacheModel model;
  ModelFiles files;
};
TrainingDataset open_training_dataset(const std::filesystem::path& file, const ModelFiles& files, const Flux2Config& config,
                                      const Log& log);

struct MakeCaches {
  bool latents = true, text = true;
  CacheOptions options = {};
};
struct MadeCaches {
  int64_t latents = 0, texts = 0, removed = 0;  // files
};
// Makes what is missing or out of date. The autoencoder and the text encoder are loaded one after the other, and only if there is
// work for them.
MadeCaches make_missing_caches(const TrainingDataset& dataset, const EngineOptions& engine, const MakeCaches& what,
                               const Progress& progress, const AppContext& context);

}  // namespace flux2
