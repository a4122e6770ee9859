#pragma once

#include <string>

#include "scenes/scene.h"
#include "scenes/scene_random.h"
#include "scenes/sprites.h"

namespace flux2 {

// A description of a scene in one of many forms: other words, whole sentences or short ones. Size, place, relation and background
// are sometimes left out; what is said is true.
std::string describe(const Scene& scene, SceneRandom& random, const SpriteSheet& sheet);

// Parts of it. "red circle with white dots", "cat"; "a blue background with yellow stripes".
std::string noun_of(const SceneObject& object, SceneRandom& random, const SpriteSheet& sheet);
std::string background_words(const Fill& fill, SceneRandom& random);
std::string colour_word(int colour, SceneRandom& random);
std::string usual_word(const Words& words, SceneRandom& random);  // mostly the first

// "A red circle." of "a red circle", now and then.
std::string as_sentence(std::string text, SceneRandom& random);

}  // namespace flux2
