#include "model/block_layers.h"

#include <fmt/format.h>

namespace flux2 {

std::vector<BlockLayer> block_layers(Flux2Transformer& transformer) {
  std::vector<BlockLayer> layers;
  for (size_t i = 0; i < transformer.double_blocks.size(); ++i) {
    DoubleBlock& block = transformer.double_blocks[i];
    for (const bool text : {false, true}) {
      DoubleStream& s = text ? block.txt : block.img;
      const std::string stream = fmt::format("double_blocks.{}.{}_", i, text ? "txt" : "img");
      layers.push_back({stream + "attn.qkv", &s.qkv});
      layers.push_back({stream + "attn.proj", &s.proj});
      layers.push_back({stream + "mlp.0", &s.mlp_in});
      layers.push_back({stream + "mlp.2", &s.mlp_out});
    }
  }
  for (size_t i = 0; i < transformer.single_blocks.size(); ++i) {
    SingleBlock& block = transformer.single_blocks[i];
    layers.push_back({fmt::format("single_blocks.{}.linear1", i), &block.in});
    layers.push_back({fmt::format("single_blocks.{}.linear2", i), &block.out});
  }
  return layers;
}

}  // namespace flux2
