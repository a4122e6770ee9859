#pragma once

#include <cstdint>
#include <filesystem>

#include "base/json.h"
#include "scenes/random_scene.h"

namespace flux2 {

// The table `scenes` of a dataset: images that are drawn while training (src/scenes) instead of read from files.
struct SceneConfig {
  uint64_t seed = 0;
  int64_t count = 4096;      // scenes that are kept at a time; each is visited num_repeats times an epoch
  int64_t redraw = 1;        // epochs after which all scenes are drawn again; 0: never
  int64_t captions = 4;      // wordings of each scene
  double edit_share = 0.33;  // of scenes with one reference image: what the instruction starts from
  double two_reference_share = 0.05;
  std::filesystem::path things;  // PNG with the sprites; empty: shapes only
  double thing_share = 0.45, pattern_share = 0.4, some_share = 0.2, couple_share = 0.3, free_colours = 0;

  int64_t edits() const { return static_cast<int64_t>(edit_share * static_cast<double>(count)); }
  int64_t blends() const { return static_cast<int64_t>(two_reference_share * static_cast<double>(count)); }
  SceneOptions options(int sprites, double aspect) const;
  bool operator==(const SceneConfig&) const = default;
};

// Reads the table. Throws InvalidArgument for unknown keys, wrong types and impossible values, naming the key.
SceneConfig scene_config_in(const Json& table);

}  // namespace flux2
