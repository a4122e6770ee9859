#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "tensor/device.h"

namespace flux2 {

struct ModelBenchOptions {
  std::string variant = "klein-4b";
  int width = 1024, height = 1024;  // multiples of 16
  int batch = 1;                    // images in one step
  int references = 0;               // images of the same size among the step's tokens
  int repeat = 10;
  bool text = true, step = true, decode = true, encode = true, picture = true;
  int steps = 4;        // of the whole image
  bool per_op = false;  // also which ops the time goes to
};

// One network's forward pass on random weights and inputs.
struct ModelBenchRow {
  std::string kernel;
  double median = 0, fastest = 0;  // seconds
  double flop = 0;
  std::vector<OpTime> ops;  // of one more pass, slowest first, where the device can tell and it was asked for

  double rate() const { return flop / median; }
};

struct ModelBench {
  double ceiling = 0;  // FLOP/s of a large matrix product on this device, measured in the same run
  std::vector<ModelBenchRow> rows;
  MemoryUse memory;
};

// Times the networks of a model at real size without its files: medians of `repeat` passes after warm-up.
ModelBench bench_model(const Engine& engine, const ModelBenchOptions& options);

}  // namespace flux2
