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
    x = double_blocks[i].image_only(x, rope, double_mod, {.own = &kept[i], .bits = attention_bits});
  }
  for (size_t i = 0; i < single_blocks.size(); ++i) {
    const size_t block = double_blocks.size() + i;
    if (before_block) before_block();
    const BlockTurn turn(schedule, block, x.stream());
    const Tensor n = modulated_norm(x, single_mod.shift, single_mod.scale, {.as = single_blocks[i].in.takes(x)});
    if (i + 1 == single_blocks.size() && !single_blocks[i].in.change) {  // nobody reads what it adds
      const auto [k, v] = single_blocks[i].keys_and_values(n, rope);
      kept[block] = {k.contiguous(), v.contiguous()};
      break;
    }
    x = gated_add(x, single_mod.gate, single_blocks[i].branch(n, rope, {.own = &kept[block], .bits = attention_bits}));
  }
  return kept;
}

}  // namespace flux2
