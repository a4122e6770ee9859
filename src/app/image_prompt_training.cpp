#include "app/image_prompt_training.h"

#include <algorithm>
#include <map>

#include "app/registry_access.h"
#include "base/error.h"
#include "base/path_exists.h"
#include "image/read_image.h"
#include "train/data/dataset.h"
#include "train/data/source_images.h"

namespace flux2 {

namespace {

namespace fs = std::filesystem;

fs::path encoder_path(const TrainOptions& options, const AppContext& context) {
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

// The images whose vectors a dataset needs, and which of them each item of the training set may have.
struct PromptImages {
  struct Source {
    const DatasetConfig& config;
    const DatasetItem& item;
    fs::path file;  // empty: the target of the item
  };
  std::vector<Dataset> datasets;  // which the sources refer to
  std::vector<Source> sources;
  std::vector<ItemFeatures::Choice> choices;
};

PromptImages prompt_images(const TrainingSet& data, std::vector<Dataset> listed) {
  PromptImages images{std::move(listed), {}, {}};
  std::vector<std::map<std::string, const DatasetItem*>> by_stem(images.datasets.size());
  std::vector<std::map<std::string, std::vector<const DatasetItem*>>> groups(images.datasets.size());
  for (size_t d = 0; d < images.datasets.size(); ++d)
    for (const DatasetItem& item : images.datasets[d].items) {
      by_stem[d][item.stem] = &item;
      if (item.group) groups[d][*item.group].push_back(&item);
    }
  std::map<const std::vector<const DatasetItem*>*, size_t> first_of;  // the groups whose images are among the sources
  for (const CachedItem& cached : data.items()) {
    const auto found = by_stem.at(cached.dataset).find(cached.stem);
    if (found == by_stem[cached.dataset].end())
      throw Error(ErrorCode::NotFound, fmt::format("{}: the image of {} is gone", dataset_name(cached.dataset), cached.stem),
                  Hint("remove its cache files, or leave out {0}", {set_option("keep_cache")}));
    const DatasetConfig& config = images.datasets[cached.dataset].config;
    const DatasetItem& item = *found->second;
    const size_t next = images.sources.size();
    if (item.group) {
      const std::vector<const DatasetItem*>& group = groups[cached.dataset][*item.group];
      const auto [first, is_new] = first_of.try_emplace(&group, next);
      if (is_new)
        for (const DatasetItem* other : group) images.sources.push_back({config, *other, other->image});
      const auto own = std::find(group.begin(), group.end(), &item) - group.begin();
      images.choices.push_back({.first = first->second, .count = group.size(), .own = static_cast<size_t>(own)});
    } else if (!item.image_prompts.empty()) {
      for (const fs::path& file : item.image_prompts) images.sources.push_back({config, item, file});
      images.choices.push_back({.first = next, .count = item.image_prompts.size()});
    } else {
      images.sources.push_back({config, item, {}});
      images.choices.push_back({.first = next});
    }
  }
  return images;
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

ItemFeatures TrainingImageEncoder::of_items(const TrainingSet& data, const TrainingDataset& dataset, const Progress& progress,
                                            const AppContext& context) const {
  const PromptImages images = prompt_images(data, list_datasets(dataset.configs, {}, context.log));
  ItemFeatures features{{}, images.choices};
  std::map<fs::path, size_t> known;  // a file may be the image prompt of several images
  const auto total = static_cast<int>(images.sources.size());
  progress.at(Phase::EncodeImages, 0, total);
  for (const PromptImages::Source& source : images.sources) {
    const auto before = source.file.empty() ? known.end() : known.find(source.file);
    if (before != known.end()) {
      features.vectors.push_back(std::vector<float>(features.vectors[before->second]));
    } else if (source.file.empty()) {
      const SourceImages files = read_sources(source.config, source.item, context.limits.image, context.log);
      features.vectors.push_back(of(prepare_item(source.config, source.item, files).target));
    } else {
      known[source.file] = features.vectors.size();
      features.vectors.push_back(of(read_image(source.file, {.limits = context.limits.image, .log = context.log})));
    }
    progress.at(Phase::EncodeImages, static_cast<int>(features.vectors.size()), total);
  }
  return features;
}

}  // namespace flux2
