#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/noise.h"
#include "pipeline/schedule.h"
#include "tensor/tensor.h"

namespace flux2 {

// Everything that decides the pixels of a text-to-image run, already valid: front ends resolve defaults and
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

  // Inputs given instead of computed, on the host: [T, Cctx], [T, Cctx], [128, rows, columns].
  Tensor given_text, given_negative, given_noise;

  int64_t rows() const { return height / 16; }
  int64_t columns() const { return width / 16; }
  int64_t tokens() const { return rows() * columns(); }
};

}  // namespace flux2
