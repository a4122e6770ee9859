#include "train/data/image_set.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

#include "base/counted_random.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "train/data/cache_names.h"
#include "train/data/dataset.h"
#include "train/data/source_images.h"

namespace flux2 {

namespace {

constexpr uint32_t kSquarePlace = 40;  // what the numbers of CountedRandom are for

// The images of all datasets in the size of their buckets. Those that fit into memory are decoded once.
class BucketImages {
 public:
  BucketImages(std::vector<Dataset> datasets, const ImageSetOptions& options)
      : datasets_(std::move(datasets)), options_(options) {
    for (size_t d = 0; d < datasets_.size(); ++d)
      for (const DatasetItem& item : datasets_[d].items) items_.emplace_back(d, &item);
  }

  size_t count() const { return items_.size(); }
  size_t dataset_of(size_t item) const { return items_[item].first; }
  const DatasetItem& item(size_t item) const { return *items_[item].second; }
  const DatasetConfig& config_of(size_t item) const { return datasets_[items_[item].first].config; }

  PreparedItem read(size_t item) const {
    const auto& [dataset, listed] = items_[item];
    const DatasetConfig& config = datasets_[dataset].config;
    PreparedItem prepared = prepare_item(config, *listed, read_sources(config, *listed, options_.limits));
    keep(item, prepared.target);
    return prepared;
  }

  Image image(size_t item) const {
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = kept_.find(item); found != kept_.end()) return found->second;
    }
    return read(item).target;
  }

 private:
  void keep(size_t item, const Image& image) const {
    const std::lock_guard lock(mutex_);
    const auto bytes = static_cast<int64_t>(image.pixels.size());
    if (kept_bytes_ + bytes > options_.kept_bytes || !kept_.emplace(item, image).second) return;
    kept_bytes_ += bytes;
  }

  std::vector<Dataset> datasets_;
  ImageSetOptions options_;
  std::vector<std::pair<size_t, const DatasetItem*>> items_;
  mutable std::mutex mutex_;
  mutable std::map<size_t, Image> kept_;
  mutable int64_t kept_bytes_ = 0;
};

Image square_of(const Image& image, int side, const Sample& sample, bool validation, uint64_t seed) {
  if (validation) return centre_crop(image, side, side);
  const CountedRandom random(seed, kSquarePlace, sample.index);
  const auto place = [&](uint64_t element, int room) {
    return static_cast<int>(random.uniform(element) * static_cast<double>(room + 1));
  };
  return crop(image, place(0, image.width - side), place(1, image.height - side), side, side);
}

LoadedBatch pixels_of(const BucketImages& images, const BatchPlan& plan, const DatasetConfig& config,
                      const ImageSetOptions& options) {
  LoadedBatch batch;
  batch.plan = plan;
  batch.regularisation = config.is_reg;
  batch.loss_multiplier.assign(plan.samples.size(), static_cast<float>(config.loss_multiplier));
  for (const Sample& sample : plan.samples) {
    Image image = images.image(sample.item);
    if (options.crop > 0) image = square_of(image, static_cast<int>(options.crop), sample, config.validation, options.seed);
    if (sample.flipped) image = mirrored(image);
    if (latent_size({image.width, image.height}) != plan.size)
      fail(ErrorCode::BadFile, "{} was replaced while it was used: it has another size", images.item(sample.item).image.string());
    for (const uint8_t value : image.pixels) batch.pixels.push_back(static_cast<float>(value) / 127.5f - 1.0f);
  }
  return batch;
}

}  // namespace

TrainingSet image_training_set(std::vector<DatasetConfig> configs, const CacheModel& model, const ImageSetOptions& options) {
  for (DatasetConfig& config : configs) {
    if (!config.caption_default) config.caption_default = "";
    config.control_directory.clear();
    config.mask_directory.clear();
    config.image_prompt_directory.clear();
    config.image_prompt_group = ImageGroup::None;
    config.alpha_mask = false;
  }
  const auto images = std::make_shared<const BucketImages>(list_datasets(configs, {.caption_variants = 1}, options.log), options);
  std::vector<CachedItem> items(images->count());
  std::vector<std::string> faults(images->count());
  ThreadPool threads(options.threads);
  threads.parallel_for(static_cast<int64_t>(images->count()), [&](int64_t index) {
    const auto i = static_cast<size_t>(index);
    try {
      const PreparedItem prepared = images->read(i);
      const DatasetItem& listed = images->item(i);
      if (options.crop > std::min(prepared.bucket.width, prepared.bucket.height))
        fail(ErrorCode::InvalidArgument, "{} is used with {}×{} pixels, which is smaller than the square of {}",
             listed.image.string(), prepared.bucket.width, prepared.bucket.height, options.crop);
      CachedItem& item = items[i];
      item.dataset = images->dataset_of(i);
      item.stem = listed.stem;
      item.width = prepared.original.width;
      item.height = prepared.original.height;
      item.size = latent_size(options.crop > 0 ? PixelSize{options.crop, options.crop} : prepared.bucket);
      item.has_flip = images->config_of(i).flip_aug;
      item.caption_hash = "-";
    } catch (const Error& e) {
      faults[i] = e.what();
    }
  });
  for (const std::string& fault : faults)
    if (!fault.empty()) fail(ErrorCode::InvalidArgument, "{}", fault);
  auto load = [images, configs, options](const BatchPlan& plan) {
    return pixels_of(*images, plan, configs.at(plan.dataset), options);
  };
  return {std::move(configs), model, std::move(items), std::move(load)};
}

}  // namespace flux2
