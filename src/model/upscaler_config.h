#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "weights/weight_source.h"

namespace flux2 {

// The sizes of an RRDBNet, the network of ESRGAN and Real-ESRGAN. It enlarges its grid of features four times; scales 1 and 2
// first fold 4×4 or 2×2 pixels into channels.
struct UpscalerConfig {
  int scale = 4;  // 1, 2 or 4
  int blocks = 23;
  int64_t width = 64, growth = 32;  // channels of the features, and what each convolution of a dense block adds
  bool older_names = false;         // model.1.sub.0.RDB1.conv1.0 instead of body.0.rdb1.conv1

  int fold() const { return 4 / scale; }
  int64_t inputs() const { return 3 * fold() * fold(); }
  std::string name() const;  // "RRDBNet x4, 23 blocks of width 64"

  bool operator==(const UpscalerConfig&) const = default;
};

// The names of the network's tensors in a file with their shapes, [O, I, 3, 3] for filters.
std::vector<std::pair<std::string, Shape>> upscaler_tensors(const UpscalerConfig& config);

// The first tensor that shows that a file holds an RRDBNet; null if it does not.
const StoredTensor* upscaler_sign(const WeightSource& weights);

// Reads the sizes off the tensors. Throws Incompatible, naming what was found, if the file holds no complete RRDBNet.
UpscalerConfig detect_upscaler(const WeightSource& weights);

}  // namespace flux2
