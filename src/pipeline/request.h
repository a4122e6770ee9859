#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/noise.h"
#include "pipeline/planes.h"
#include "pipeline/schedule.h"
#include "tensor/tensor.h"

namespace flux2 {

// Everything that decides the pixels of a run, already valid: front ends resolve defaults and
// check values before they build one.
struct Request {
  std::string prompt, negative;
  int width = 1024, height = 1024;  // multiples of 16
  int steps = 4;
  double guidance = 1.0;            // an input of models with guidance embedding, ignored by others
  std::optional<double> cfg;        // true classifier-free guidance: two passes a step
  uint64_t seed = 0;                // picture k of a batch starts from seed + k
  int batch = 1;
  Schedule schedule;
  double shift = 0;                 // 0: the model's rule
  NoiseSource noise;
  TimeRounding time_rounding = TimeRounding::Exact;

  // Pictures the transformer sees beside the one it makes, "image 1" of the prompt first; sides multiples of 16.
  std::vector<std::shared_ptr<const Planes>> references;
  bool reuse_reference_keys = false;  // klein-9B-KV: references see each other alone, once; all else sees them at every step
  bool negative_references = true;  // the negative pass of true guidance sees them too

  // Inputs given instead of computed, on the host: [T, Cctx], [T, Cctx], [128, rows, columns].
  Tensor given_text, given_negative, given_noise;

  int64_t rows() const { return height / 16; }
  int64_t columns() const { return width / 16; }
  int64_t tokens() const { return rows() * columns(); }
  int64_t reference_tokens() const {
    int64_t count = 0;
    for (const auto& picture : references) count += int64_t{picture->height} / 16 * (picture->width / 16);
    return count;
  }
};

}  // namespace flux2
