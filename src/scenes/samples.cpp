#include "scenes/samples.h"

#include "scenes/captions.h"
#include "scenes/edits.h"

namespace flux2 {

SceneSample scene_sample(SceneSampleKind kind, uint64_t seed, uint64_t index, const SceneOptions& options,
                         const SpriteSheet& sheet, int captions) {
  SceneRandom random(seed, index);
  SceneSample sample;
  switch (kind) {
    case SceneSampleKind::Plain:
      sample.target = random_scene(random, options);
      for (int i = 0; i < captions; ++i) sample.captions.push_back(describe(sample.target, random, sheet));
      break;
    case SceneSampleKind::Edit: {
      SceneEdit edit = random_edit(static_cast<EditKind>(random.below(kEditKinds)), random, options, sheet, captions);
      sample.target = std::move(edit.target);
      sample.references = {std::move(edit.source)};
      sample.captions = std::move(edit.instructions);
      break;
    }
    case SceneSampleKind::TwoReferences: {
      SceneBlend blend = random_blend(random, options, sheet, captions);
      sample.target = std::move(blend.target);
      sample.references = {std::move(blend.first), std::move(blend.second)};
      sample.captions = std::move(blend.instructions);
      break;
    }
  }
  return sample;
}

}  // namespace flux2
