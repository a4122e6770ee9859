#include "app/image_prompt_training.h"

#include <map>

#include "app/registry_access.h"
#include "base/error.h"
#include "base/path_exists.h"
#include "train/data/dataset.h"
#include "train/data/source_images.h"

namespace flux2 {

namespace {

std::filesystem::path encoder_path(const TrainOptions& options, const AppContext& context) {
  const auto path = model_path(options.image_prompt_encoder, ComponentKind::ImageEncoder, context);
  if (!path_exists(path))
    throw Error(ErrorCode::NotFound, fmt::format("the image encoder {} does not exist", path.string()),
                Hint("name the file or folder of a CLIP vision encoder with {0}", {set_option("image_prompt_encoder")}));
  return path;
}

ImagePromptConfig config_for(const ClipConfig& clip, const TrainOptions& options, const Flux2Config& transformer) {
  const bool projected = options.image_prompt_feature == "projected";
  ImagePromptConfig config = image_prompt_config(options, transformer, projected ? clip.projection : clip.hidden);
  if (clip != ClipConfig()) config.encoder = clip.name();  // the name says which encoder a user needs
  return config;
}

}  // namespace

ImagePromptConfig planned_image_prompt(const TrainOptions& options, const Flux2Config& transformer, const AppContext& context) {
  return config_for(detect_clip(*open_weights(encoder_path(options, context), context.log)), options, transformer);
}

TrainingImageEncoder::TrainingImageEncoder(const TrainOptions& options, const Flux2Config& transformer,
                                           const AppContext& context) {
  encoder_ = std::make_shared<const ClipEncoder>(encoder_path(options, context), 0, context.log);
  config_ = config_for(encoder_->config(), options, transformer);
}

std::vector<std::vector<float>> TrainingImageEncoder::of_items(const TrainingSet& data, const TrainingDataset& dataset,
                                                               const Progress& progress, const AppContext& context) const {
  const std::vector<Dataset> listed = list_datasets(dataset.configs, {}, context.log);
  std::vector<std::map<std::string, const DatasetItem*>> by_stem(listed.size());
  for (size_t d = 0; d < listed.size(); ++d)
    for (const DatasetItem& item : listed[d].items) by_stem[d][item.stem] = &item;
  std::vector<std::vector<float>> features;
  const auto total = static_cast<int>(data.items().size());
  progress.at(Phase::EncodeImages, 0, total);
  for (const CachedItem& cached : data.items()) {
    const auto found = by_stem.at(cached.dataset).find(cached.stem);
    if (found == by_stem[cached.dataset].end())
      throw Error(ErrorCode::NotFound, fmt::format("{}: the image of {} is gone", dataset_name(cached.dataset), cached.stem),
                  Hint("remove its cache files, or leave out {0}", {set_option("keep_cache")}));
    const DatasetConfig& config = listed[cached.dataset].config;
    const DatasetItem& item = *found->second;
    features.push_back(of(prepare_item(config, item, read_sources(config, item, context.limits.image, context.log)).target));
    progress.at(Phase::EncodeImages, static_cast<int>(features.size()), total);
  }
  return features;
}

}  // namespace flux2
