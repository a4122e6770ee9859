#pragma once

#include <string>
#include <vector>

#include "scenes/scene.h"

namespace flux2 {

// The first word is the usual one, the others mean the same.
using Words = std::vector<std::string>;

struct SceneColour {
  Words words;
  Rgb8 rgb;
};
const std::vector<SceneColour>& scene_colours();

const Words& words_of(Figure figure);
const Words& words_of(SizeWord size);
const Words& words_of(Place place);                  // "at the top left", …
const Words& words_of(Relation relation);            // "to the left of", …
const std::string& number_word(size_t count);        // "two", up to four
std::string plural(const std::string& word);         // "foxes"
std::string with_article(const std::string& words);  // "an orange star"

// A fill of one of the colours, painted as it is named.
Fill plain_fill(int colour);

}  // namespace flux2
