#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scenes/edits.h"
#include "scenes/sprites.h"

namespace flux2::test {

// One question of the benchmark: a prompt, and the scene that it asks for. What the prompt does not say is free.
struct ScoreCase {
  std::string category;
  std::string prompt;
  Scene scene;                    // what should be seen
  std::vector<Scene> references;  // that the model gets, the first is edited
  size_t object = 0;              // that the instruction is about
  bool inpaint = false;           // only the area of the object, in the target, is generated; references[0] is the canvas
};

const std::vector<std::string>& score_categories();

// Questions of all categories, the same for the same arguments. The category `thing` asks for every thing of the sheet once at
// least.
std::vector<ScoreCase> score_cases(int per_category, uint64_t seed, const SpriteSheet& sheet, double aspect = 1);

// Whether a picture is a right answer.
bool is_right(const ScoreCase& question, const Image& picture, const SpriteSheet& sheet);

// The area of a question with inpainting: white is generated.
Image mask_of(const ScoreCase& question, int width, int height);

// An answer by the drawer, which is right: the scene with other jitter, where the prompt leaves it free.
Image drawn_answer(const ScoreCase& question, int width, int height, const SpriteSheet& sheet, uint64_t seed);

}  // namespace flux2::test
