#pragma once

#include <string>
#include <vector>

#include "scenes/random_scene.h"
#include "scenes/sprites.h"

namespace flux2 {

enum class EditKind { Recolour, Background, Add, Remove, Move, Replace, Resize };
constexpr int kEditKinds = 7;

// Scenes before and after, and what to say. Whatever the instruction does not name is the same in both, to the pixel.
struct SceneEdit {
  EditKind kind = EditKind::Recolour;
  size_t object = 0;  // that changes, in the source; of Add, in the target
  Scene source, target;
  std::vector<std::string> instructions;  // different words for the same
};
SceneEdit random_edit(EditKind kind, SceneRandom& random, const SceneOptions& options, const SpriteSheet& sheet, int wordings);

// Two scenes and one made of both: the object of the second is put into the first, or the first gets the background of the
// second.
struct SceneBlend {
  bool background = false;
  Scene first, second, target;
  std::vector<std::string> instructions;
};
SceneBlend random_blend(SceneRandom& random, const SceneOptions& options, const SpriteSheet& sheet, int wordings);

}  // namespace flux2
