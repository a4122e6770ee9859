#pragma once

#include "engine/engine.h"

namespace flux2 {

// FLOP/s of a product large enough to fill the device, with weights as the engine keeps them; the median of `repeat`.
double product_rate(const Engine& engine, int repeat);

}  // namespace flux2
