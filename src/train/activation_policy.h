#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/flux2_transformer.h"
#include "train/train_options.h"

namespace flux2 {

// What blocks keep for their gradients (training.md 7.5): p0 everything, p1 their input, p2 their input and attention.
enum class ActivationPolicy { P0, P1, P2 };

// As the options say; none if the plan shall choose.
std::optional<ActivationPolicy> activation_policy_of(const TrainOptions& options);

std::vector<BlockMemory> block_memory(ActivationPolicy policy, size_t blocks);

// The fastest mix that stays within `room` bytes, from what a step with the memory of each block needs. Later blocks keep more,
// because they need it for a shorter time. Blocks of which `must_recompute` says so keep p1 or p2. If nothing fits, all blocks
// are p1.
struct ChosenActivations {
  std::vector<BlockMemory> memory;
  int64_t bytes = 0;  // of a step

  std::string str() const;  // "5 blocks keep everything, 20 their input and attention"
};
using StepBytes = std::function<int64_t(const std::vector<BlockMemory>& memory)>;
ChosenActivations choose_activations(size_t blocks, int64_t room, const StepBytes& step_bytes,
                                     const std::function<bool(size_t block)>& must_recompute = {});

}  // namespace flux2
