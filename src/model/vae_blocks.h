#pragma once

#include <string>
#include <vector>

#include "nn/conv.h"

namespace flux2 {

// conv3×3(silu(GN(·))) twice, added to the input (through a 1×1 convolution where the width changes).
struct ResBlock {
  ResBlock() = default;
  ResBlock(int64_t in, int64_t out, int groups);

  Tensor operator()(const Tensor& x) const;
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

  GroupNorm norm1, norm2;
  Conv conv1, conv2;
  Conv shortcut;  // used when its input width is not 0
};

// One attention head of full width over all positions, added to the input.
struct AttnBlock {
  AttnBlock() = default;
  AttnBlock(int64_t channels, int groups);

  Tensor operator()(const Tensor& x) const;
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

  GroupNorm norm;
  Conv q, k, v, proj_out;
};

struct MidBlock {
  MidBlock() = default;
  MidBlock(int64_t channels, int groups)
      : block_1(channels, channels, groups), attn_1(channels, groups), block_2(channels, channels, groups) {}

  void visit(const std::string& prefix, const ParameterVisitor& visitor);

  ResBlock block_1;
  AttnBlock attn_1;
  ResBlock block_2;
};

// The residual blocks of one resolution and the convolution that leaves it (down or up), if there is one.
struct Level {
  std::vector<ResBlock> blocks;
  Conv resample;  // used when its input width is not 0

  void visit(const std::string& prefix, const char* resample_name, const ParameterVisitor& visitor);
};

}  // namespace flux2
