#pragma once

#include "engine/engine.h"

namespace flux2 {

// FLOP/s of a product large enough to fill the device, with weights as the engine keeps them; the median of `repeat`.
double product_rate(const Engine& engine, int repeat);

// FLOP/s that this device reaches now with the shapes of a model.
struct ModelRates {
  double attention = 0;                 // of a transformer
  double step = 0;                      // all else in a transformer's blocks, what costs no FLOP included
  double text_attention = 0, text = 0;  // the same of a text encoder
  double decode = 0, encode = 0;
};

// What to measure; parts that are missing stay 0.
struct MeasuredModel {
  const Flux2Config* transformer = nullptr;
  const DecoderConfig* text_encoder = nullptr;
  const VaeConfig* vae = nullptr;
  int64_t tokens = 0, text_tokens = 0;  // of one pass
  int64_t side = 0;                     // of the image, in pixels
  bool encodes = false;                 // images are encoded too
};

// Runs one block of each network with random weights, on fewer tokens and pixels where the real ones would take longer than a
// part of a second.
ModelRates measure_rates(const Engine& engine, const MeasuredModel& model);

}  // namespace flux2
