#pragma once

#include <string>
#include <vector>

#include "model/flux2_transformer.h"

namespace flux2 {

// A linear layer inside a block, by its name in original checkpoints.
struct BlockLayer {
  std::string path;  // "double_blocks.0.img_attn.qkv"
  Linear* layer;
};

// Every linear layer of the blocks: for each double block the four of the image stream, then the four of the text stream; then
// linear1 and linear2 of each single block. Trainers number modules in this order.
std::vector<BlockLayer> block_layers(Flux2Transformer& transformer);

}  // namespace flux2
