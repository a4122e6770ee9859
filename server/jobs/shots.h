#pragma once

#include <string>
#include <vector>

#include "server/store/element_store.h"
#include "server/store/shot_store.h"

// What a shot of a story becomes: which elements it shows, and the prompt of its image.
namespace flux2 {

struct ElementScore {
  const Element* element = nullptr;
  double score = 0;    // 0.4 to 1
  std::string source;  // where it was found: character, trigger, scene, action, dialogue or description
};

// The elements that a shot shows, best first, each once.
std::vector<ElementScore> match_elements(const Shot& shot, const std::string& heading, const std::vector<Element>& elements);

// Which parts of a shot are in its prompt, besides its own text.
struct ShotParts {
  bool scene = true, shot_type = true, character = true, dialogue = true;
  bool setting = true;  // places that match and are not mentioned
  bool context = true;  // what happened in the shot before
};

// `places`: elements of type location that match the shot. `before`: the action of the shot before it.
std::string shot_prompt(const Shot& shot, const std::string& scene_name, const std::vector<Element>& places,
                        const std::string& before, const ShotParts& parts);

// A quick drawing of the shot.
std::string thumbnail_prompt(const Shot& shot);

}  // namespace flux2
