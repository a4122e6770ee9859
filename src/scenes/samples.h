#pragma once

#include <string>
#include <vector>

#include "scenes/random_scene.h"
#include "scenes/sprites.h"

namespace flux2 {

enum class SceneSampleKind { Plain, Edit, TwoReferences };

// What a model learns from: a scene to draw, the scenes it starts from, and texts that ask for it.
struct SceneSample {
  Scene target;
  std::vector<Scene> references;
  std::vector<std::string> captions;
};

// A sample that depends on the arguments only.
SceneSample scene_sample(SceneSampleKind kind, uint64_t seed, uint64_t index, const SceneOptions& options,
                         const SpriteSheet& sheet, int captions);

}  // namespace flux2
