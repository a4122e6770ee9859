#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "app/context.h"
#include "base/json.h"
#include "engine/engine.h"
#include "hub/model_files.h"
#include "pipeline/progress.h"
#include "record/request_spec.h"
#include "train/data/cache_model.h"
#include "train/data/make_caches.h"

namespace flux2 {

// What a run trains from, for its states: a name and a size that another model seldom shares, and how the weights are quantised.
Json training_base(const std::filesystem::path& weights, Quant quant);

// A .json or .toml file. TOML needs a build with toml++; without it the error says that JSON works.
Json read_json_or_toml(const std::filesystem::path& path);

// The names that musubi-tuner has for models, and "auto".
const std::vector<std::string>& model_version_names();

// Throws Incompatible unless a transformer is of that version, and InvalidArgument for an unknown version. "auto" and an empty
// version are any.
void check_model_version(const std::string& version, const Flux2Config& config);

// The model that caches are made for. A version and the files of the encoders are enough: there need be no transformer.
struct CacheTarget {
  ModelFiles files;
  CacheModel model;
};
struct CacheParts {
  bool latents = true, text = true;
};
CacheTarget find_cache_target(const RequestSpec& spec, const std::string& model_version, const CacheParts& parts,
                              const AppContext& context);

// A dataset file together with the model that its caches are made for.
struct TrainingDataset {
  std::filesystem::path file;
  std::vector<DatasetConfig> configs;
  CacheModel model;
  ModelFiles files;
};
TrainingDataset open_training_dataset(const std::filesystem::path& file, const ModelFiles& files, const Flux2Config& config,
                                      const Log& log);
TrainingDataset open_training_dataset(const std::filesystem::path& file, const CacheTarget& target, const Log& log);

struct MakeCaches {
  bool latents = true, text = true;
  CacheOptions options = {};  // limits, log and encoder are filled in
  int64_t caption_variants = kCaptionVariants;
};
struct MadeCaches {
  int64_t latents = 0, texts = 0, removed = 0;  // files
  int64_t images = 0;                           // of all datasets
};
// Makes what is missing or out of date. The autoencoder and the text encoder are loaded one after the other, and only if there is
// work for them. Latents in float32 are computed in profile exact.
MadeCaches make_missing_caches(const TrainingDataset& dataset, const EngineOptions& engine, const MakeCaches& what,
                               const Progress& progress, const AppContext& context);

}  // namespace flux2
