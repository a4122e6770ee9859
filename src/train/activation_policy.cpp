#include "train/activation_policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace flux2 {

namespace {

constexpr BlockMemory kMemoryOf[] = {{}, {.recompute = true}, {.recompute = true, .keep_attention = true}};

BlockMemory memory_of_policy(ActivationPolicy policy) { return kMemoryOf[static_cast<size_t>(policy)]; }

}  // namespace

std::optional<ActivationPolicy> activation_policy_of(const TrainOptions& options) {
  if (options.activation_policy == "auto") return std::nullopt;
  if (options.activation_policy == "p2") return ActivationPolicy::P2;
  const bool recompute = options.activation_policy.empty() ? options.gradient_checkpointing : options.activation_policy == "p1";
  return recompute ? ActivationPolicy::P1 : ActivationPolicy::P0;
}

std::vector<BlockMemory> block_memory(ActivationPolicy policy, size_t blocks) {
  return std::vector<BlockMemory>(blocks, memory_of_policy(policy));
}

std::string ChosenActivations::str() const {
  size_t everything = 0, attention = 0, inputs = 0;
  for (const BlockMemory& m : memory) ++(!m.recompute ? everything : m.keep_attention ? attention : inputs);
  std::vector<std::string> parts;
  const auto add = [&](size_t count, const char* what) {
    if (count > 0) parts.push_back(fmt::format("{}{} keep {}", count, parts.empty() ? " blocks" : "", what));
  };
  add(everything, "everything");
  add(attention, "their input and attention");
  add(inputs, "only their input");
  return fmt::format("{}", fmt::join(parts, ", "));
}

ChosenActivations choose_activations(size_t blocks, int64_t room, const StepBytes& step_bytes,
                                     const std::function<bool(size_t block)>& must_recompute) {
  // The last `count` blocks have the better policy.
  const auto mixed = [&](ActivationPolicy lower, ActivationPolicy upper, size_t count) {
    std::vector<BlockMemory> memory = block_memory(lower, blocks);
    for (size_t i = blocks - count; i < blocks; ++i) {
      memory[i] = memory_of_policy(upper);
      if (!memory[i].recompute && must_recompute && must_recompute(i)) memory[i] = memory_of_policy(lower);
    }
    return memory;
  };
  // The most blocks with which it fits. More blocks never need less.
  const auto most = [&](ActivationPolicy lower, ActivationPolicy upper) {
    size_t fits = 0, too_many = blocks + 1;
    ChosenActivations best{mixed(lower, upper, 0), 0};
    best.bytes = step_bytes(best.memory);
    while (too_many - fits > 1) {
      const size_t middle = too_many == blocks + 1 && fits == 0 ? blocks : (fits + too_many) / 2;  // often all fit
      ChosenActivations tried{mixed(lower, upper, middle), 0};
      tried.bytes = step_bytes(tried.memory);
      if (tried.bytes <= room) {
        fits = middle;
        best = std::move(tried);
      } else {
        too_many = middle;
      }
    }
    return best;
  };
  const ChosenActivations attention = most(ActivationPolicy::P1, ActivationPolicy::P2);
  const bool all =
      std::all_of(attention.memory.begin(), attention.memory.end(), [](const BlockMemory& m) { return m.keep_attention; });
  return all ? most(ActivationPolicy::P2, ActivationPolicy::P0) : attention;
}

}  // namespace flux2
