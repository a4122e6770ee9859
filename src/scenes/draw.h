#pragma once

#include "image/image.h"
#include "scenes/scene.h"
#include "scenes/sprites.h"

namespace flux2 {

// Paints a scene, antialiased, RGB. The same scene gives the same pixels. Objects are painted in their order. The sheet must hold
// every thing of the scene.
Image draw_scene(const Scene& scene, int width, int height, const SpriteSheet& sheet);

// The signed distance of a point to the edge of a figure of radius 1 around (0, 0), negative inside. The y axis points down.
// Exact near edges, a lower bound elsewhere.
float distance_to(Figure figure, float x, float y);

}  // namespace flux2
