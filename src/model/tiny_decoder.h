#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tensor/tensor.h"
#include "weights/weight_source.h"

namespace flux2 {

// The decoder of a tiny autoencoder (TAESD's family; TAEF2 is the one for FLUX.2): latents → a preview. Immutable once loaded.
struct TinyDecoder {
  // Latents [1, h, w, 32], normalised and unpacked, after clamped() → RGB [1, 8h, 8w, 3] in F32, about 0 … 1.
  Tensor operator()(const Tensor& latents) const;
  // 3 · tanh(x / 3): the first layer, which the host computes.
  static float clamped(float latent);

  struct Filter {
    Tensor weight, bias;  // [O, k, k, I]; the bias may be undefined
  };
  // relu(x + three 3×3 convolutions of x). If there is a pool, x is x + pool(x) first.
  struct Block {
    std::array<Filter, 3> convs;
    struct Pool {
      Filter widen, narrow;  // 1×1
      Tensor norm_weight, norm_bias;
    };
    std::optional<Pool> pool;
  };
  // Enlarges to twice the size with a convolution, except for the first stage, then runs its blocks.
  struct Stage {
    std::optional<Filter> enlarge;
    std::vector<Block> blocks;
  };
  Filter first, last;
  std::vector<Stage> stages;  // four
  DType activations = DType::F32;
};

// How the files name layer N of the decoder: "decoder.layers." with the convolution as layer 0, or "decoder." with it as layer 1.
// Empty if the file holds no tiny decoder, or one for another model: `channels` are the latent channels of its first layer.
struct TinyDecoderNames {
  std::string prefix;
  int offset = 0;  // of the first convolution
  int64_t channels = 0;

  std::string layer(int index) const { return prefix + std::to_string(index + offset); }
};
std::optional<TinyDecoderNames> find_tiny_decoder(const WeightSource& weights);

constexpr int64_t kTinyDecoderChannels = 32;  // of FLUX.2

// Throws Incompatible, naming what was found, if the file does not hold a complete decoder for FLUX.2.
TinyDecoder load_tiny_decoder(const WeightSource& weights, Stream& stream, DType activations);

}  // namespace flux2
