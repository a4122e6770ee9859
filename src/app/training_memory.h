#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "record/request_spec.h"
#include "train/block_swap.h"
#include "train/step_trial.h"

namespace flux2 {

// Where everything is while a run trains: what blocks keep for their gradients, and which blocks are streamed.
struct TrainingMemory {
  std::vector<BlockMemory> block_memory;
  StreamedBlocks streamed;
  size_t blocks = 0;
  bool on_host = false;  // the device is a CPU
  int64_t weights = 0;   // bytes of frozen weights in memory
  int64_t pool = 0;      // of what is trained, its optimiser, gradients and activations
  int64_t overhead = 0;  // of kernels and, on a CPU, of the program
  int64_t limit = 0;     // that the sum is compared with; 0: unknown

  int64_t peak() const { return weights + pool + overhead; }
  bool fits() const { return limit == 0 || peak() <= limit; }
  std::string str() const;  // "20 blocks keep their input; 12 of 25 blocks are streamed"
};

// Whether the blocks to swap are possible with the other options, before anything is read. Throws InvalidArgument.
void check_swapped_blocks(const RequestSpec& spec, const TrainOptions& options, const Flux2Config& config);

// Decides it by rehearsing a step on a device that counts memory. `spec` names blocks to swap. Where memory does not suffice and
// nothing was said against it, blocks are streamed. Throws InvalidArgument for options that cannot be combined, and OutOfMemory
// if the memory limit that was given is too small.
TrainingMemory plan_training_memory(const Engine& engine, const ModelFiles& files, const RequestSpec& spec,
                                    const TrainOptions& options, const BatchShape& largest);

}  // namespace flux2
