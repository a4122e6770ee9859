#include "model/flux2_transformer.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/norm.h"

namespace flux2 {

ReferenceKeys Flux2Transformer::reference_keys(const Tensor& tokens, const Tensor& vec, const Rope& rope,
                                               const BeforeBlock& before_block) const {
  check(tokens.rank() == 3 && vec.shape() == Shape{tokens.dim(0), config.hidden}, "references {} with conditioning {}",
        tokens.shape(), vec.shape());
  const Tensor m = silu(vec);
  const auto double_mod = split_double_modulation(img_modulation(m));
  const Modulation single_mod = split_single_modulation(single_modulation(m));
  ReferenceKeys kept(double_blocks.size() + single_blocks.size());

  Tensor x = img_in(tokens);
  for (size_t i = 0; i < double_blocks.size(); ++i) {
    if (before_block) before_block();
    const BlockTurn turn(schedule, i, x.stream());
    x = double_blocks[i].image_only(x, rope, double_mod, {.own = &kept[i]});
  }
  for (size_t i = 0; i < single_blocks.size(); ++i) {
    const size_t block = double_blocks.size() + i;
    if (before_block) before_block();
    const BlockTurn turn(schedule, block, x.stream());
    const Tensor n = modulated_norm(x, single_mod.shift, single_mod.scale, {.as = single_blocks[i].in.takes(x)});
    x = gated_add(x, single_mod.gate, single_blocks[i].branch(n, rope, {.own = &kept[block]}));
  }
  return kept;
}

}  // namespace flux2
