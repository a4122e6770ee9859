#pragma once

#include <string>

#include "nn/parameter.h"
#include "ops/conv2d.h"

namespace flux2 {

// A square convolution with bias over images [B, H, W, C]. Size 1 is a linear layer over the channels.
struct Conv {
  Conv() = default;
  Conv(int64_t in, int64_t out, int size, int stride = 1, Padding padding = {})
      : in(in), out(out), size(size), stride(stride), padding(padding) {}

  Tensor operator()(const Tensor& x) const { return conv2d(x, weight, bias, stride, padding); }
  Tensor added_to(const Tensor& residual, const Tensor& x) const {
    return conv2d_add(x, weight, bias, stride, padding, residual);
  }
  // Applies the convolution to the image upsampled to twice its size; for 3×3 convolutions with a border of one.
  Tensor upsampled(const Tensor& x) const { return upsample_conv2d(x, weight, bias); }
  void visit(const std::string& name, const ParameterVisitor& visitor);

  int64_t in = 0, out = 0;
  int size = 3, stride = 1;
  Padding padding;
  Tensor weight;  // [out, size, size, in]
  Tensor bias;
};

inline Conv conv3x3(int64_t in, int64_t out) { return {in, out, 3, 1, {1, 1, 1, 1}}; }
inline Conv conv1x1(int64_t in, int64_t out) { return {in, out, 1}; }

// GroupNorm, followed by SiLU where the model has one.
struct GroupNorm {
  explicit GroupNorm(int64_t channels = 0, int groups = 32) : channels(channels), groups(groups) {}

  Tensor operator()(const Tensor& x) const;
  Tensor then_silu(const Tensor& x) const;
  void visit(const std::string& name, const ParameterVisitor& visitor);

  int64_t channels;
  int groups;
  Tensor weight, bias;
};

}  // namespace flux2
