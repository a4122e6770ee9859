#pragma once

#include <vector>

#include "scenes/scene.h"
#include "scenes/scene_random.h"

namespace flux2 {

// What scenes are made of. Shares are probabilities.
struct SceneOptions {
  int things = 0;              // in the sheet
  double aspect = 1;           // width / height of the picture
  double thing_share = 0.45;   // of objects, if there are things
  double pattern_share = 0.4;  // of backgrounds that are not plain; figures have half of it
  double some_share = 0.2, couple_share = 0.3;
  double free_colours = 0;  // of fills with any colour, which no word describes: for training an autoencoder
};

Scene random_scene(SceneRandom& random, const SceneOptions& options);

// Parts of it. Colours are told apart easily from those in `others`.
int random_colour(SceneRandom& random, const std::vector<int>& others);
Fill random_background(SceneRandom& random, const SceneOptions& options);
SceneObject random_object(SceneRandom& random, const SceneOptions& options, const std::vector<int>& other_colours);
Place random_place(SceneRandom& random);

// Whether two colours of scene_colours() are easily told apart.
bool are_apart(int a, int b);

// The colours of a fill: one or two.
std::vector<int> colours_of(const Fill& fill);
std::vector<int> colours_in(const Scene& scene);

// Gives an object its radius, or its centre at its place inside the picture.
void set_radius(SceneObject& object, SceneRandom& random);
void set_centre(SceneObject& object, SceneRandom& random, double aspect);

// The distance of the centres in shares of the shorter side.
float distance_between(const SceneObject& a, const SceneObject& b, double aspect);

}  // namespace flux2
