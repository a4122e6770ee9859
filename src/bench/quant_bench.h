#pragma once

#include <string>
#include <vector>

#include "bench/bench_inputs.h"

namespace flux2 {

struct QuantBenchOptions {
  std::string variant = "klein-4b";
  StepShape shape = {.width = 256, .height = 256};
  std::vector<Quant> quants = {Quant::None, Quant::Int8, Quant::Q8_0, Quant::Q4_0, Quant::Fp8};
};

// The precision lost by one type of quantisation: relative errors of the velocity of one step, compared with the same step in f32
// with the original weights.
struct QuantBenchRow {
  Quant quant;
  AttentionBits attention = AttentionBits::Sixteen;
  double error = 0;            // as this device computes it
  double weights_error = 0;    // of f32 arithmetic with the same quantised weights: what rounding the weights alone does
  double attention_error = 0;  // with attention in 8 bits: against the same step with attention in 16 bits
  double seconds = 0;          // of the step, once
  int64_t weight_bytes = 0;
};

// A type that the options compute with attention in 8 bits has a row without it and a row with it.
// Measures the types one after the other, each on a new device, so that only one model is in memory at a time.
std::vector<QuantBenchRow> bench_quants(const EngineOptions& engine, const QuantBenchOptions& options);

}  // namespace flux2
