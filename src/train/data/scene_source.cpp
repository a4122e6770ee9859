#include "train/data/scene_source.h"

#include <fmt/format.h>

#include "base/error.h"
#include "scenes/draw.h"
#include "train/data/dataset.h"

namespace flux2 {

namespace {

// To be raised when the same seed draws other scenes or gets other captions, so that a run that is resumed notices it.
constexpr int kDrawingVersion = 2;

// Everything that decides what is drawn, for the hash of the dataset.
std::string text_of(const SceneConfig& c) {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {} {}", kDrawingVersion, c.seed, c.redraw, c.captions, c.edit_share,
                     c.two_reference_share, c.things.filename().string(), c.thing_share, c.pattern_share, c.some_share,
                     c.couple_share, c.free_colours);
}

}  // namespace

SceneSource::SceneSource(std::vector<DatasetConfig> configs) : configs_(std::move(configs)) {
  for (size_t d = 0; d < configs_.size(); ++d)
    in_context(dataset_name(d), [&] {
      require(configs_[d].scenes.has_value(), "no scenes");
      sheets_.push_back(scenes(d).things.empty() ? SpriteSheet() : SpriteSheet(scenes(d).things));
    });
}

size_t SceneSource::first_item(size_t dataset) const {
  size_t first = 0;
  for (size_t d = 0; d < dataset; ++d) first += static_cast<size_t>(scenes(d).count);
  return first;
}

int64_t SceneSource::references(size_t dataset, int64_t item) const {
  const SceneConfig& config = scenes(dataset);
  if (item < config.blends()) return 2;
  return item < config.blends() + config.edits() ? 1 : 0;
}

SceneSample SceneSource::sample(size_t dataset, int64_t item, int64_t drawing) const {
  const SceneConfig& config = scenes(dataset);
  const PixelSize size = configs_[dataset].resolution;
  const SpriteSheet& sheet = sheets_[dataset];
  const auto options = config.options(sheet.count(), static_cast<double>(size.width) / static_cast<double>(size.height));
  return scene_sample(static_cast<SceneSampleKind>(references(dataset, item)), config.seed,
                      static_cast<uint64_t>(drawing * config.count + item), options, sheet, static_cast<int>(config.captions));
}

Image SceneSource::draw(size_t dataset, const Scene& scene) const {
  const PixelSize size = configs_[dataset].resolution;
  return draw_scene(scene, static_cast<int>(size.width), static_cast<int>(size.height), sheets_[dataset]);
}

std::vector<CachedItem> SceneSource::items(bool with_references) const {
  std::vector<CachedItem> items;
  for (size_t d = 0; d < configs_.size(); ++d) {
    const std::string text = text_of(scenes(d));
    for (int64_t i = 0; i < scenes(d).count; ++i) {
      CachedItem item;
      item.dataset = d;
      item.stem = fmt::format("scene-{:08}", i);
      item.width = configs_[d].resolution.width;
      item.height = configs_[d].resolution.height;
      item.size = size(d);
      if (with_references) item.references.assign(static_cast<size_t>(references(d, i)), item.size);
      item.caption_hash = text;
      items.push_back(std::move(item));
    }
  }
  return items;
}

int64_t SceneSource::samples_per_epoch() const {
  int64_t count = 0;
  for (const DatasetConfig& config : configs_)
    if (!config.validation) count += config.scenes->count * config.num_repeats;
  return count;
}

}  // namespace flux2
