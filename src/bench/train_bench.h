#pragma once

#include <string>
#include <vector>

#include "bench/bench_inputs.h"
#include "tensor/device.h"

namespace flux2 {

struct TrainBenchOptions {
  std::string variant = "klein-4b";
  StepShape shape;
  int rank = 32;            // of the adapters
  bool checkpoint = false;  // compute each block again for its gradient
  int repeat = 10;
  bool per_op = false;  // also which ops the time goes to
};

// Steps of training adapters on every linear layer of the blocks.
struct TrainBench {
  double median = 0, fastest = 0;  // seconds
  double flop = 0;
  double ceiling = 0;  // FLOP/s of a large matrix product on this device, measured in the same run
  int adapters = 0;
  int64_t parameters = 0;  // of all adapters
  double loss = 0;
  double gradient_norm = 0;  // over all adapters
  MemoryUse memory;
  std::vector<OpTime> ops;  // of one more step, slowest first, where the device can tell and it was asked for

  double rate() const { return flop / median; }
};

// Times one step on random weights and inputs: forward, flow-matching loss, gradients of all adapters, which are F32 whatever
// the activations are, their norm and AdamW.
TrainBench bench_train(const Engine& engine, const TrainBenchOptions& options);

}  // namespace flux2
