#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "tensor/tensor.h"

namespace flux2 {

// Where the starting noise comes from: "torch-cpu" (float32 draw of PyTorch's CPU generator), "torch-cuda" or
// "torch-cuda:SMSxTHREADS" (a CUDA generator on that GPU), "grid" (tied to the position relative to the centre:
// a larger image of the same seed holds the smaller one's noise in its middle).
struct NoiseSource {
  enum Kind { TorchCpu, TorchCuda, Grid } kind = TorchCpu;
  CudaGeometry gpu;
  bool gpu_in_use = false;  // "torch-cuda": use the geometry of the device, or an H100's if the device is not a GPU

  std::string name() const;
  NoiseSource on(const Device& device) const;  // the same with the geometry it has there
};
NoiseSource parse_noise(std::string_view text);

// Noise of a second seed that is mixed in: at strength 0 the image stays as it is, at 1 it is that of the other seed.
struct Variation {
  uint64_t seed = 0;
  double strength = 0;

  std::string text() const;  // which parse_variation reads back
  bool operator==(const Variation&) const = default;
};
Variation parse_variation(std::string_view text);  // "SEED:STRENGTH"

// Along the arc from `noise` to `other`, so that the result is unit normal noise again.
void mix_noise(std::vector<float>& noise, const std::vector<float>& other, double strength);

// Unit normal noise for one image, [128, rows, columns]. "torch-cuda" noise is drawn on the GPU if there is one, bit-identical to
// PyTorch.
std::vector<float> make_noise(const NoiseSource& source, uint64_t seed, int64_t channels, int64_t rows, int64_t columns,
                              Stream* stream = nullptr);

}  // namespace flux2
