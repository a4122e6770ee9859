// The transformer when reference tokens have a conditioning vector of their own. Every modulation then has two versions: one for
// text and target, one for references. Both kinds of tokens still share every product.

#include "autograd/checkpoint.h"
#include "autograd/grad.h"
#include "model/flux2_transformer.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/attention.h"
#include "ops/norm.h"
#include "ops/view.h"

namespace flux2 {

namespace {

struct TokenRows {
  Tensor main, references;  // [B, S, C]: tokens of the target (in single blocks also of the text), and of references
};

TokenRows split_rows(const Tensor& x, int64_t references) {
  const auto parts = split(x, {x.dim(1) - references, references}, 1);
  return {parts[0], parts[1]};
}

Tensor joined_rows(const TokenRows& rows) { return concat({rows.main, rows.references}, 1); }

struct RowModulation {
  Modulation main, references;
};

Tensor modulated_rows(const TokenRows& x, const RowModulation& m) {
  return joined_rows(
      {modulated_norm(x.main, m.main.shift, m.main.scale), modulated_norm(x.references, m.references.shift, m.references.scale)});
}

TokenRows added_rows(const TokenRows& x, const RowModulation& m, const Tensor& branch) {
  const TokenRows added = split_rows(branch, x.references.dim(1));
  return {gated_add(x.main, m.main.gate, added.main), gated_add(x.references, m.references.gate, added.references)};
}

struct AttentionRule {
  int64_t references = 0;  // how many of the last tokens are references
  bool apart = false;      // whether they see only each other
  AttentionBits bits = AttentionBits::Sixteen;
};

struct DoubleRows {
  TokenRows img;
  Tensor txt;
};

DoubleRows run_rows(const DoubleBlock& block, const DoubleRows& x, const Rope& rope, const DoubleBlock::Modulations& img_mod,
                    const DoubleBlock::Modulations& reference_mod, const DoubleBlock::Modulations& txt_mod, AttentionRule rule) {
  const RowModulation attention_mod{img_mod.attention, reference_mod.attention}, mlp_mod{img_mod.mlp, reference_mod.mlp};
  const DoubleStream& img = block.img;
  const Heads t = block.txt.heads(x.txt, txt_mod.attention), i = split_heads(img.qkv(modulated_rows(x.img, attention_mod)));
  const auto [q, k] = rope.after_norms({block.txt.norm(t.qk), img.norm(i.qk)});
  const Tensor v = concat({t.v, i.v}, 1);
  const AttentionOptions options = Attending{.bits = rule.bits}.options(img.qkv);
  Tensor a;
  if (rule.apart) {
    const TokenRows queries = split_rows(q, rule.references);
    a = joined_rows(
        {attention(queries.main, k, v, options), attention(queries.references, split_rows(k, rule.references).references,
                                                           split_rows(v, rule.references).references, options)});
  } else {
    a = attention(q, k, v, options);
  }
  const auto parts = split(a, {x.txt.dim(1), a.dim(1) - x.txt.dim(1)}, 1);
  const TokenRows y = added_rows(x.img, attention_mod, img.proj(parts[1]));
  return {.img = added_rows(y, mlp_mod, img.mlp_out(img.mlp_in.then_swiglu(modulated_rows(y, mlp_mod), img.mlp_out))),
          .txt = block.txt.finish(x.txt, parts[0], txt_mod.attention, txt_mod.mlp)};
}

TokenRows run_rows(const SingleBlock& block, const TokenRows& x, const Rope& rope, const RowModulation& m, AttentionRule rule) {
  const Tensor n = modulated_rows(x, m);
  const Attending how{.bits = rule.bits};
  if (!rule.apart) return added_rows(x, m, block.branch(n, rope, how));
  const auto parts = split(block.in(n), {3 * block.dim, 2 * block.hidden});
  const auto [qk, v] = split_heads(parts[0]);
  const auto [q, k] = rope.after_norms({block.norm(qk)});
  const TokenRows queries = split_rows(q, rule.references), mlp = split_rows(parts[1], rule.references);
  const AttentionOptions options = how.options(block.in);
  const Tensor both =
      joined_rows({attention_beside_swiglu(queries.main, k, v, mlp.main, {}, options),
                   attention_beside_swiglu(queries.references, split_rows(k, rule.references).references,
                                           split_rows(v, rule.references).references, mlp.references, {}, options)});
  return added_rows(x, m, block.out(both));
}

std::vector<Tensor> flat_inputs(std::vector<Tensor> inputs, std::initializer_list<const Modulation*> modulations) {
  for (const Modulation* m : modulations) inputs.insert(inputs.end(), {m->shift, m->scale, m->gate});
  return inputs;
}

Modulation modulation_at(const std::vector<Tensor>& inputs, size_t at) { return {inputs[at], inputs[at + 1], inputs[at + 2]}; }

}  // namespace

Tensor Flux2Transformer::with_reference_vec(const Inputs& in) const {
  check(in.reference_vec.shape() == in.vec.shape() && in.keep > 0 && in.keep < in.x.dim(1) && !in.references,
        "transformer: a conditioning vector {} for references, but {} of {} tokens are the target's", in.reference_vec.shape(),
        in.keep, in.x.dim(1));
  const AttentionRule rule{in.x.dim(1) - in.keep, in.references_apart, attention_bits};
  const Tensor m = silu(in.vec), r = silu(in.reference_vec);
  const auto img_mod = split_double_modulation(img_modulation(m)), reference_mod = split_double_modulation(img_modulation(r)),
             txt_mod = split_double_modulation(txt_modulation(m));
  const Modulation single_mod = split_single_modulation(single_modulation(m)),
                   single_reference_mod = split_single_modulation(single_modulation(r));
  const auto last = modulation_chunks(final_modulation(m), 2);  // shift, scale

  const auto recomputes = [&](size_t block) {
    return in.block_memory.empty() ? in.checkpoint_blocks : in.block_memory[block].recompute;
  };
  const auto second_run = [&](size_t block, size_t stored) {
    CheckpointOptions options{.store = in.input_store, .stored = stored};
    if (schedule)
      options.hold = [this, block, stream = in.x.stream().shared_from_this()] {
        return std::make_shared<const BlockTurn>(schedule, block, *stream);
      };
    return options;
  };
  const auto check_gradient = [&](size_t block, const Tensor& x) {
    check(!schedule || recomputes(block) || !schedule->replaces_weights(block) || !wants_grad(x),
          "transformer: gradients of streamed blocks need checkpointing");
  };

  DoubleRows s{split_rows(img_in(in.x), rule.references), in.txt};
  for (size_t i = 0; i < double_blocks.size(); ++i) {
    if (in.before_block) in.before_block();
    const BlockTurn turn(schedule, i, in.x.stream());
    const DoubleBlock& block = double_blocks[i];
    if (recomputes(i)) {
      const auto y = checkpoint(
          [&block, rope = in.rope, rule](const std::vector<Tensor>& v) {
            const auto modulations = [&](size_t at) {
              return DoubleBlock::Modulations{modulation_at(v, at), modulation_at(v, at + 3)};
            };
            const DoubleRows out =
                run_rows(block, {{v[0], v[1]}, v[2]}, rope, modulations(3), modulations(9), modulations(15), rule);
            return std::vector{out.img.main, out.img.references, out.txt};
          },
          flat_inputs({s.img.main, s.img.references, s.txt}, {&img_mod.attention, &img_mod.mlp, &reference_mod.attention,
                                                              &reference_mod.mlp, &txt_mod.attention, &txt_mod.mlp}),
          second_run(i, 3));
      s = {{y[0], y[1]}, y[2]};
    } else {
      s = run_rows(block, s, in.rope, img_mod, reference_mod, txt_mod, rule);
    }
    check_gradient(i, s.img.main);
  }

  TokenRows x{concat({s.txt, s.img.main}, 1), s.img.references};
  for (size_t i = 0; i < single_blocks.size(); ++i) {
    if (in.before_block) in.before_block();
    const size_t number = double_blocks.size() + i;
    const BlockTurn turn(schedule, number, in.x.stream());
    const SingleBlock& block = single_blocks[i];
    if (recomputes(number)) {
      const auto y = checkpoint(
          [&block, rope = in.rope, rule](const std::vector<Tensor>& v) {
            const TokenRows out = run_rows(block, {v[0], v[1]}, rope, {modulation_at(v, 2), modulation_at(v, 5)}, rule);
            return std::vector{out.main, out.references};
          },
          flat_inputs({x.main, x.references}, {&single_mod, &single_reference_mod}), second_run(number, 2));
      x = {y[0], y[1]};
    } else {
      x = run_rows(block, x, in.rope, {single_mod, single_reference_mod}, rule);
    }
    check_gradient(number, x.main);
  }
  return final_linear(narrow(modulated_norm(x.main, last[0], last[1]), 1, in.txt.dim(1), in.keep));
}

}  // namespace flux2
