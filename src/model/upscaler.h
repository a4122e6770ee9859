#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "model/upscaler_config.h"
#include "tensor/tensor.h"

namespace flux2 {

// Five convolutions, of which each reads the input and the results of all before it. Two forms of the same weights: on a CPU, the
// convolutions are sorted by their input, so that each input is unfolded and multiplied once; on a GPU, the inputs are
// concatenated, and each convolution runs once.
struct DenseBlock {
  Tensor operator()(const Tensor& x) const;

  int64_t growth = 0;
  std::array<Tensor, 5> weights;
  std::array<Tensor, 5> biases;  // sorted by input: the first holds all
  bool by_input = false;
};

// RGB images in [0, 1] → larger ones. Immutable once loaded.
struct Upscaler {
  // What runs before each block of the network, `done` of `all`: reports progress and may throw to stop.
  using BeforeBlock = std::function<void(int done, int all)>;

  // [1, H, W, 3] in F32 with sides that are multiples of fold() → [1, scale · H, scale · W, 3] in F32, not clamped.
  Tensor operator()(const Tensor& picture, const BeforeBlock& before_block = {}) const;

  // The same from the features on: [1, h, w, width] → [1, 4h, 4w, 3]. Large features are enlarged in bands of rows.
  Tensor enlarge_features(const Tensor& features) const;

  UpscalerConfig config;
  DType activations = DType::F32;  // of what convolutions read on a GPU; sums of blocks are always F32

  struct Filter {
    Tensor weight, bias;
  };
  Filter first, body, up1, up2, high, last;
  std::vector<DenseBlock> blocks;  // three of each

 private:
  Tensor enlarge_band(const Tensor& features) const;
};

struct UpscalerLoading {
  Stream& stream;
  DType weights = DType::F32;
  DType activations = DType::F32;
};
Upscaler load_upscaler(const WeightSource& weights, const UpscalerConfig& config, const UpscalerLoading& loading);

}  // namespace flux2
