#include "app/training_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/pattern.h"
#include "engine/forecast.h"

namespace flux2 {

namespace {

std::string gib_text(int64_t bytes) {
  return fmt::format("{:.2f}", std::ceil(static_cast<double>(bytes) / (1 << 30) * 100) / 100);
}

// Bytes of the weights that are not trained.
int64_t frozen_weights(Flux2Transformer& network, const NetworkBytes& all, const TrainOptions& options) {
  if (!options.full) return all.total();
  const std::vector<Pattern> frozen(options.freeze.begin(), options.freeze.end());
  int64_t bytes = 0;
  network.visit([&](const Parameter& p) {
    if (std::any_of(frozen.begin(), frozen.end(), [&](const Pattern& f) { return f.found_in(p.name); }))
      bytes += p.tensor.bytes();
  });
  return bytes;
}

// The named options cannot work with blocks that are streamed.
void check_streaming(const StreamedBlocks& streamed, const std::vector<BlockMemory>& memory, const TrainOptions& options) {
  if (streamed.empty()) return;
  check(!options.full, "blocks cannot be streamed while the whole model is trained: their weights change");
  for (const size_t block : streamed)
    if (!memory[block].recompute)
      throw Error(ErrorCode::InvalidArgument, "a block that is streamed must be computed again for its gradient",
                  Hint("add {0}", {set_option("gradient_checkpointing")}));
}

bool contains_block(const StreamedBlocks& streamed, size_t block) {
  return std::find(streamed.begin(), streamed.end(), block) != streamed.end();
}

}  // namespace

std::string TrainingMemory::str() const {
  std::string text = ChosenActivations{block_memory, 0}.str();
  if (!streamed.empty()) text += fmt::format("; {} of {} blocks are streamed", streamed.size(), blocks);
  return text;
}

void check_swapped_blocks(const RequestSpec& spec, const TrainOptions& options, const Flux2Config& config) {
  const auto blocks = static_cast<size_t>(config.double_blocks + config.single_blocks);
  check_streaming(blocks_to_swap(spec.blocks_to_swap.value_or(0), config.double_blocks, config.single_blocks),
                  block_memory(activation_policy_of(options).value_or(ActivationPolicy::P1), blocks), options);
}

TrainingMemory plan_training_memory(const Engine& engine, const ModelFiles& files, const RequestSpec& spec,
                                    const TrainOptions& options, const BatchShape& largest) {
  const CountedTransformer counted = counted_transformer(engine, files);
  const Flux2Config& config = counted.network->config;
  const bool host = engine.device().is_host();
  TrainingMemory plan;
  plan.blocks = counted.weights.blocks.size();
  plan.on_host = host;
  plan.overhead = overhead_bytes(engine);
  plan.limit = engine.options().memory_limit > 0 ? engine.options().memory_limit : engine.device().memory().available;
  const int64_t frozen = frozen_weights(*counted.network, counted.weights, options);
  const auto weight_bytes = [&] { return plan.streamed.empty() ? frozen : counted.weights.with_streamed(plan.streamed); };
  const auto step_bytes = [&](const std::vector<BlockMemory>& memory) {
    return counted_step_bytes(*counted.network, engine.activations(), options, memory, largest);
  };

  plan.streamed = blocks_to_swap(spec.blocks_to_swap.value_or(0), config.double_blocks, config.single_blocks);
  if (engine.options().offload == Offload::Stream && plan.streamed.empty())
    plan.streamed = spread_blocks(plan.blocks, plan.blocks);
  const auto policy = activation_policy_of(options);
  plan.block_memory = block_memory(policy.value_or(ActivationPolicy::P1), plan.blocks);
  plan.pool = step_bytes(plan.block_memory);
  plan.weights = weight_bytes();
  check_streaming(plan.streamed, plan.block_memory, options);

  // On a CPU, the engine itself gives up the pages of mapped blocks.
  const bool may_stream = !host && !options.full && engine.options().offload != Offload::None && plan.streamed.empty() &&
                          plan.block_memory[0].recompute;
  // What is chosen freely leaves some room: a GPU's pool holds more than it hands out, and libraries take a little.
  const int64_t usable = host ? plan.limit : plan.limit - plan.limit / 12;
  for (size_t count = 1; may_stream && plan.peak() > usable && count <= plan.blocks; ++count) {
    plan.streamed = spread_blocks(count, plan.blocks);
    plan.weights = weight_bytes();
  }
  if (!policy && plan.fits()) {
    const ChosenActivations chosen = choose_activations(plan.blocks, usable - plan.weights - plan.overhead, step_bytes,
                                                        [&](size_t block) { return contains_block(plan.streamed, block); });
    plan.block_memory = chosen.memory;
    plan.pool = chosen.bytes;
  }
  if (!host && !plan.fits() && engine.options().memory_limit > 0) {
    std::string way = "a smaller resolution or batch size needs less memory";
    if (!plan.block_memory[0].recompute) way += ", and so does {0}";
    else if (!options.full && engine.quant() == Quant::None) way += ", and so do {1} and {2}";
    throw Error(ErrorCode::OutOfMemory,
                fmt::format("training needs {} GiB of memory; the limit is {} GiB", gib_text(plan.peak()), gib_text(plan.limit)),
                Hint(way, {set_option("gradient_checkpointing"), set_option("fp8_base"), set_option("fp8_scaled")}));
  }
  return plan;
}

}  // namespace flux2
