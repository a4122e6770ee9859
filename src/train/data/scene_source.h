#pragma once

#include <vector>

#include "image/image.h"
#include "scenes/samples.h"
#include "train/data/training_set.h"

namespace flux2 {

// The scenes of datasets: which scene an item is, and its pixels.
class SceneSource {
 public:
  explicit SceneSource(std::vector<DatasetConfig> configs);

  const std::vector<DatasetConfig>& configs() const { return configs_; }
  const SceneConfig& scenes(size_t dataset) const { return *configs_[dataset].scenes; }
  size_t first_item(size_t dataset) const;  // in items()
  LatentSize size(size_t dataset) const { return latent_size(configs_[dataset].resolution); }
  int64_t references(size_t dataset, int64_t item) const;  // 0, 1 or 2; the same whenever scenes are drawn again

  // Scene `item` of a drawing: another drawing holds other scenes.
  SceneSample sample(size_t dataset, int64_t item, int64_t drawing) const;
  Image draw(size_t dataset, const Scene& scene) const;

  // One entry for each scene of each dataset, in this order.
  std::vector<CachedItem> items(bool with_references) const;
  int64_t samples_per_epoch() const;  // with repeats, without validation

 private:
  std::vector<DatasetConfig> configs_;
  std::vector<SpriteSheet> sheets_;
};

}  // namespace flux2
