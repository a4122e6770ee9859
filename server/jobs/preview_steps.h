#pragma once

#include <vector>

#include "base/json.h"

namespace flux2 {

// `count` of the steps 1 … steps, evenly spread; never the last one, whose result is the image. With few steps there are fewer.
std::vector<int> preview_steps(int count, int steps);

// Whether a job wants a preview after this step: "preview" of its request may say {"count": 2} or {"every": 4}.
bool wants_preview(const Json& request, int step, int steps);

}  // namespace flux2
