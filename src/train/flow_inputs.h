#pragma once

#include <functional>
#include <vector>

#include "tensor/tensor.h"
#include "train/data/training_set.h"
#include "train/optimiser/timesteps.h"

namespace flux2 {

// Called from several threads at a time.
using DrawTimestep = std::function<Timestep(const Sample& sample, LatentSize size)>;

// What noise is drawn for: the purpose of CountedRandom.
enum class FlowNoise : uint32_t { Training = 1, Validation = 13 };

// A batch whose samples all have references or all have none, with everything that is known before the network runs. It depends
// on seed and sample index only, so it can be made ahead of the step, on any thread.
struct FlowInputs {
  BatchPlan plan;
  Tensor x;                         // [B, N, 128] noised latents as tokens; in host memory, like all tensors here
  std::vector<Tensor> references;   // each [B, Nr, 128]; empty without references
  Tensor text;                      // [B, T, C]; undefined if the text encoder is trained
  Tensor token_ids, token_mask;     // I32 [B, T], then
  Tensor features;                  // [B, F]: vectors of image prompts; undefined without, and where they are dropped
  std::vector<float> target;        // [B, N, 128]: ε − x0
  std::vector<float> mask;          // [B, N]; empty: all 1
  std::vector<double> loss_weight;  // [B]: weight of the timestep times the multiplier of the dataset
  std::vector<Timestep> times;      // [B]

  int64_t size() const { return static_cast<int64_t>(plan.samples.size()); }
  int64_t text_length() const { return text.defined() ? text.dim(1) : token_ids.dim(1); }
  int64_t tokens() const;  // that the transformer sees, of all samples
};

// x_t = (1 − t)·x0 + t·ε for every sample of the batch. Text states are rounded to `text_dtype`, F32 or BF16.
FlowInputs noised(const LoadedBatch& batch, uint64_t seed, FlowNoise purpose, const DrawTimestep& draw, DType text_dtype);

}  // namespace flux2
