#include "train/data/survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "base/error.h"
#include "base/thread_pool.h"
#include "image/read_image.h"
#include "train/data/match_files.h"
#include "train/data/source_images.h"

namespace flux2 {

namespace {

// An image that is scaled up more than this gets blurred; training learns that.
constexpr double kMostEnlargement = 1.5;
// Beyond this a reference and its image show different parts of the scene.
constexpr double kMostAspectDifference = 0.02;

struct ItemSurvey {
  PixelSize size, bucket;
  std::vector<PixelSize> references, reference_sizes;  // as in the files, and as they will be
  std::string error;
};

ItemSurvey survey_item(const DatasetConfig& config, const DatasetItem& item, const ImageLimits& limits) {
  ItemSurvey result;
  try {
    const SourceImages sources = read_sources(config, item, limits);
    const ItemSizes sizes = item_sizes(config, item, sources);
    result.size = sizes.original;
    result.bucket = sizes.bucket;
    result.reference_sizes = sizes.references;
    for (const Image& image : sources.references) result.references.push_back({image.width, image.height});
    for (const std::filesystem::path& path : item.image_prompts) read_image(path, {.limits = limits});
  } catch (const Error& e) {
    result.error = e.what();
  }
  return result;
}

double enlargement(const ItemSurvey& item) {
  const auto ratio = [](int64_t to, int64_t from) { return static_cast<double>(to) / static_cast<double>(from); };
  return std::max(ratio(item.bucket.width, item.size.width), ratio(item.bucket.height, item.size.height));
}

bool has_other_aspect(const ItemSurvey& item) {
  const auto aspect = [](PixelSize s) { return static_cast<double>(s.width) / static_cast<double>(s.height); };
  return std::any_of(item.references.begin(), item.references.end(), [&](PixelSize reference) {
    return std::abs(std::log(aspect(reference) / aspect(item.size))) > kMostAspectDifference;
  });
}

std::string counted(size_t count, size_t of) { return fmt::format("{} of {} images", count, of); }

}  // namespace

int64_t DatasetSurvey::images() const {
  int64_t count = 0;
  for (const BucketCount& bucket : buckets) count += bucket.images;
  return count;
}

int64_t DatasetSurvey::batches() const {
  int64_t count = 0;
  for (const BucketCount& bucket : buckets) count += bucket.batches;
  return count;
}

bool DatasetSurvey::stops() const {
  return std::any_of(findings.begin(), findings.end(), [](const Finding& f) { return f.kind == Finding::Stops; });
}

DatasetSurvey survey_dataset(const Dataset& dataset, int threads, const ImageLimits& limits) {
  const DatasetConfig& config = dataset.config;
  DatasetSurvey survey;
  survey.findings = dataset.findings;
  std::vector<ItemSurvey> items(dataset.items.size());
  ThreadPool pool(threads);
  pool.parallel_for(static_cast<int64_t>(items.size()), [&](int64_t i) {
    items[static_cast<size_t>(i)] = survey_item(config, dataset.items[static_cast<size_t>(i)], limits);
  });

  using Key = std::tuple<PixelSize, std::vector<PixelSize>>;
  std::map<Key, BucketCount> buckets;
  std::vector<std::string> blurred, other_aspect;
  for (size_t i = 0; i < items.size(); ++i) {
    const ItemSurvey& item = items[i];
    const std::string name = dataset.items[i].image.filename().string();
    if (!item.error.empty()) {
      survey.findings.push_back({Finding::Stops, item.error});
      continue;
    }
    BucketCount& bucket = buckets[{item.bucket, item.reference_sizes}];
    bucket.size = item.bucket;
    bucket.references = item.reference_sizes;
    ++bucket.images;
    if (enlargement(item) > kMostEnlargement)
      blurred.push_back(fmt::format("{} ({}×{})", name, item.size.width, item.size.height));
    if (!config.no_resize_control && !config.control_resolution && has_other_aspect(item)) other_aspect.push_back(name);
  }
  for (auto& [key, bucket] : buckets) {
    bucket.batches = (bucket.images * config.num_repeats + config.batch_size - 1) / config.batch_size;
    survey.buckets.push_back(bucket);
  }

  const auto warn = [&](const std::string& text) { survey.findings.push_back({Finding::Warns, text}); };
  if (!blurred.empty())
    warn(
        fmt::format("{} will be blurred, because they are enlarged by more than {}×: {}; use larger images, a smaller resolution "
                    "or bucket_no_upscale",
                    counted(blurred.size(), items.size()), kMostEnlargement, some_of(blurred)));
  if (!other_aspect.empty())
    warn(fmt::format("references with other proportions for {}; they are cut to fit and so show another part: {}",
                     counted(other_aspect.size(), items.size()), some_of(other_aspect)));
  const auto partial = std::count_if(survey.buckets.begin(), survey.buckets.end(), [&](const BucketCount& bucket) {
    return bucket.images * config.num_repeats < config.batch_size;
  });
  if (partial > 0)
    warn(fmt::format("too few images for a batch of {} in {} of {} buckets: their batches are smaller", config.batch_size,
                     partial, survey.buckets.size()));
  return survey;
}

}  // namespace flux2
