#pragma once

#include "engine/engine.h"
#include "model/upscaler_config.h"

namespace flux2 {

struct UpscaleBenchOptions {
  UpscalerConfig network;  // with random weights
  int width = 256, height = 256;
  int repeats = 3;
};

struct UpscaleBenchResult {
  double seconds = 0;  // the median of all passes, from bytes to bytes
  double fastest = 0, slowest = 0;
  double flop = 0;         // of one pass, counted on the plain equations
  int64_t peak_bytes = 0;  // of activations, and of weights on a GPU
};

// Enlarges an image with an upscaler of real size and random weights.
UpscaleBenchResult bench_upscale(const EngineOptions& engine, const UpscaleBenchOptions& options);

}  // namespace flux2
