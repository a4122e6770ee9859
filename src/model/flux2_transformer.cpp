#include "model/flux2_transformer.h"

#include <fmt/format.h>

#include "autograd/checkpoint.h"
#include "autograd/grad.h"
#include "ops/activation.h"
#include "ops/arithmetic.h"
#include "ops/norm.h"
#include "ops/view.h"

namespace flux2 {

Flux2Transformer::Flux2Transformer(const Flux2Config& c)
    : config(c),
      img_in(c.channels, c.hidden),
      txt_in(c.text_width, c.hidden),
      time_in{Linear(256, c.hidden), Linear(c.hidden, c.hidden)},
      guidance_in{Linear(256, c.hidden), Linear(c.hidden, c.hidden)},
      img_modulation(c.hidden, 6 * c.hidden),
      txt_modulation(c.hidden, 6 * c.hidden),
      single_modulation(c.hidden, 3 * c.hidden),
      double_blocks(static_cast<size_t>(c.double_blocks), DoubleBlock(c)),
      single_blocks(static_cast<size_t>(c.single_blocks), SingleBlock(c)),
      final_modulation(c.hidden, 2 * c.hidden),
      final_linear(c.hidden, c.channels) {}

std::vector<Tensor*> ImagePromptInputs::tensors() {
  std::vector<Tensor*> all;
  if (tokens.defined()) all.push_back(&tokens);
  for (auto& prompt : keys)
    for (KeyValue& block : prompt) all.insert(all.end(), {&block.k, &block.v});
  return all;
}

Tensor Flux2Transformer::TimeMlp::operator()(const Tensor& sinusoid) const { return out(silu(in(sinusoid))); }

Tensor Flux2Transformer::condition(const Tensor& time, const Tensor& guidance) const {
  const Tensor vec = time_in(time);
  if (!config.guidance) return vec;
  check(guidance.defined(), "this model takes a guidance value");
  return vec + guidance_in(guidance);
}

namespace {

// Blocks whose activations are computed again for the gradient. Everything a gradient flows to is an explicit
// input; weights are found by checkpoint() itself. The block must outlive the backward pass.
struct SecondRun {
  bool keep_attention = false;
  CheckpointOptions options;

  std::shared_ptr<KeptAttention> kept() const { return keep_attention ? std::make_shared<KeptAttention>() : nullptr; }
};

// The block with its outputs computed the first time and left out the second time.
template <class Run>
std::vector<Tensor> checkpointed(const Run& run_block, const std::vector<Tensor>& inputs, const SecondRun& run) {
  const auto kept = run.kept();
  const auto with = [=](Values values) -> Block {
    return [=](const std::vector<Tensor>& v) { return run_block(v, Attending{.kept = kept.get(), .values = values}); };
  };
  CheckpointOptions options = run.options;
  options.second = with(Values::Unused);
  return checkpoint(with(Values::Needed), inputs, options);
}

Tensor checkpointed(const SingleBlock& block, const Tensor& x, const Rope& rope, const Modulation& m, const SecondRun& run) {
  return checkpointed(
      [&block, rope](const std::vector<Tensor>& v, const Attending& attending) {
        return std::vector{block(v[0], rope, {v[1], v[2], v[3]}, attending)};
      },
      {x, m.shift, m.scale, m.gate}, run)[0];
}

DoubleBlock::Streams checkpointed(const DoubleBlock& block, const DoubleBlock::Streams& x, const Rope& rope,
                                  const DoubleBlock::Modulations& img, const DoubleBlock::Modulations& txt,
                                  const Attending& attending, const SecondRun& run) {
  std::vector<Tensor> inputs = {
      x.img,         x.txt,        img.attention.shift, img.attention.scale, img.attention.gate, img.mlp.shift,
      img.mlp.scale, img.mlp.gate, txt.attention.shift, txt.attention.scale, txt.attention.gate, txt.mlp.shift,
      txt.mlp.scale, txt.mlp.gate};
  const size_t own = inputs.size();
  for (const KeyValue& prompt : attending.image_prompts) inputs.insert(inputs.end(), {prompt.k, prompt.v});
  const auto y = checkpointed(
      [&block, rope, own, targets = attending.targets](const std::vector<Tensor>& v, const Attending& given) {
        Attending how = given;
        how.targets = targets;
        for (size_t i = own; i < v.size(); i += 2) how.image_prompts.push_back({v[i], v[i + 1]});
        const auto out = block({v[0], v[1]}, rope, {{v[2], v[3], v[4]}, {v[5], v[6], v[7]}},
                               {{v[8], v[9], v[10]}, {v[11], v[12], v[13]}}, how);
        return std::vector{out.img, out.txt};
      },
      inputs, run);
  return {y[0], y[1]};
}

}  // namespace

void Flux2Transformer::check_image_prompts(const Inputs& in) const {
  if (!in.image_prompts) return;
  const auto& [tokens, keys] = *in.image_prompts;
  check(!in.reference_vec.defined() && !(tokens.defined() && in.groups),
        "transformer: image prompts together with references of their own time, or their tokens with groups");
  check(!tokens.defined() || (tokens.rank() == 3 && tokens.dim(0) == in.x.dim(0) && tokens.dim(2) == config.hidden),
        "transformer: tokens of image prompts {}", tokens.shape());
  for (const auto& prompt : keys)
    check(prompt.size() == double_blocks.size(), "transformer: an image prompt for {} double blocks instead of {}", prompt.size(),
          double_blocks.size());
}

Tensor Flux2Transformer::operator()(const Inputs& in) const {
  check(in.x.rank() == 3 && in.txt.rank() == 3 && in.x.dim(0) == in.txt.dim(0) &&
            in.vec.shape() == Shape{in.x.dim(0), config.hidden},
        "transformer: tokens {}, text {}, conditioning {}", in.x.shape(), in.txt.shape(), in.vec.shape());
  check(!in.groups || (!in.reference_vec.defined() && !in.checkpoint_blocks && in.block_memory.empty()),
        "transformer: groups of tokens need a plain pass without gradients");
  check_image_prompts(in);
  if (in.reference_vec.defined()) return with_reference_vec(in);
  const int64_t text_tokens = in.txt.dim(1), image_tokens = in.x.dim(1);
  const size_t blocks = double_blocks.size() + single_blocks.size();
  check(in.block_memory.empty() || in.block_memory.size() == blocks, "transformer: {} policies for {} blocks",
        in.block_memory.size(), blocks);
  const auto memory_of = [&](size_t block) {
    return in.block_memory.empty() ? BlockMemory{.recompute = in.checkpoint_blocks} : in.block_memory[block];
  };
  check(!in.references || (!in.checkpoint_blocks && in.block_memory.empty() &&
                           in.references->size() == double_blocks.size() + single_blocks.size()),
        "transformer: kept references of {} blocks for another model, or for training",
        in.references ? in.references->size() : 0);
  const int64_t targets = in.keep > 0 ? in.keep : image_tokens;
  const auto attending = [&](size_t block) {
    Attending how{.others = in.references ? &(*in.references)[block] : nullptr, .groups = in.groups, .bits = attention_bits};
    if (block >= double_blocks.size() || !in.image_prompts) return how;
    for (const auto& prompt : in.image_prompts->keys) how.image_prompts.push_back(prompt[block]);
    how.targets = targets;
    return how;
  };

  const Tensor m = silu(in.vec);
  const auto img_mod = split_double_modulation(img_modulation(m)), txt_mod = split_double_modulation(txt_modulation(m));
  const Modulation single_mod = split_single_modulation(single_modulation(m));
  const auto last = modulation_chunks(final_modulation(m), 2);  // shift, scale

  DoubleBlock::Streams s{.img = img_in(in.groups ? take_rows(in.x, in.groups->order) : in.x), .txt = in.txt};
  if (in.image_prompts && in.image_prompts->tokens.defined()) s.img = concat({s.img, in.image_prompts->tokens}, 1);
  tap(in.taps, "img_in", s.img);
  tap(in.taps, "txt_in", s.txt);
  tap(in.taps, "vec", in.vec);

  // A streamed block takes a second turn when its gradient is computed.
  const auto second_run = [&](size_t block, size_t stored) {
    SecondRun run{memory_of(block).keep_attention, {.store = in.input_store, .stored = stored}};
    if (schedule)
      run.options.hold = [this, block, stream = in.x.stream().shared_from_this()] {
        return std::make_shared<const BlockTurn>(schedule, block, *stream);
      };
    return run;
  };
  const auto check_gradient = [&](size_t block, const Tensor& x) {
    check(!schedule || memory_of(block).recompute || !schedule->replaces_weights(block) || !wants_grad(x),
          "transformer: gradients of streamed blocks need checkpointing");
  };

  const Rope& rope = in.groups ? in.groups->rope : in.rope;
  for (size_t i = 0; i < double_blocks.size(); ++i) {
    if (in.before_block) in.before_block();
    const BlockTurn turn(schedule, i, in.x.stream());
    s = memory_of(i).recompute ? checkpointed(double_blocks[i], s, rope, img_mod, txt_mod, attending(i), second_run(i, 2))
                               : double_blocks[i](s, rope, img_mod, txt_mod, attending(i));
    check_gradient(i, s.img);
    tap(in.taps, fmt::format("double_blocks.{}.0", i), s.img);
    tap(in.taps, fmt::format("double_blocks.{}.1", i), s.txt);
  }

  // The norm of each block is fused with the residual sum of the previous block. The norm after the last block is the final norm.
  const Modulation final_mod{last[0], last[1], {}};
  const auto norm_of = [&](size_t block) -> const Modulation& { return block < single_blocks.size() ? single_mod : final_mod; };
  Tensor x = in.groups ? in.groups->joined(s.txt, s.img) : concat({s.txt, s.img}, 1), n;
  const auto target_rows = [&](const Tensor& t) {
    return in.groups ? take_rows(t, in.groups->target) : narrow(t, 1, text_tokens, targets);
  };
  const auto target_rope = [&] {
    const auto part = [&](const Tensor& table) { return table.narrowed(0, text_tokens, targets); };
    return in.groups ? in.groups->target_rope : Rope{part(rope.cosine), part(rope.sine), rope.pairs};
  };
  // Behind the last block, only the target's tokens are read. So of the others it computes nothing but keys and values, except
  // where somebody looks at them all, and in training, whose gradients are the same whether the block runs twice or not.
  const auto cuts = [&](size_t i) {
    const Linear& layer = single_blocks[i].in;
    return i + 1 == single_blocks.size() && !in.taps && !memory_of(blocks - 1).recompute && !layer.change &&
           !wants_grad(x, layer.weight);
  };
  bool is_cut = false;
  // The dtype that the reader of a norm prefers. Rows can be taken from float types only.
  const auto dtype_of_norm = [&](size_t block) {
    if (block < single_blocks.size()) return single_blocks[block].in.takes(x);
    return in.groups && !is_cut ? x.dtype() : final_linear.takes(x);
  };
  const auto normed = [&](const Tensor& rows, size_t block) {
    return modulated_norm(rows, norm_of(block).shift, norm_of(block).scale, {.as = dtype_of_norm(block)});
  };
  for (size_t i = 0; i < single_blocks.size(); ++i) {
    if (in.before_block) in.before_block();
    const size_t block = double_blocks.size() + i;
    const BlockTurn turn(schedule, block, in.x.stream());
    if (memory_of(block).recompute) {
      x = checkpointed(single_blocks[i], x, rope, single_mod, second_run(block, 1));
      n = {};
    } else {
      if (!n.defined()) n = normed(x, i);
      Tensor added;
      if (cuts(i)) {
        is_cut = true;
        x = target_rows(x);
        const Tensor n_target = is_float(n.dtype()) ? target_rows(n) : normed(x, i);
        added = single_blocks[i].target_branch(n, n_target, rope, target_rope(), attending(block));
      } else {
        added = single_blocks[i].branch(n, rope, attending(block));
      }
      const Modulation& next = norm_of(i + 1);
      auto both = gated_add_norm(x, single_mod.gate, added, next.shift, next.scale, {.as = dtype_of_norm(i + 1)});
      x = std::move(both.sum), n = std::move(both.normed);
    }
    check_gradient(block, x);
    tap(in.taps, fmt::format("single_blocks.{}", i), x);
  }
  if (!n.defined()) n = normed(x, single_blocks.size());
  const Tensor velocity = final_linear(is_cut ? n : target_rows(n));
  return in.groups ? take_rows(velocity, in.groups->back) : velocity;
}

void Flux2Transformer::visit(const ParameterVisitor& v) {
  img_in.visit("img_in", v);
  txt_in.visit("txt_in", v);
  time_in.in.visit("time_in.in_layer", v);
  time_in.out.visit("time_in.out_layer", v);
  if (config.guidance) {
    guidance_in.in.visit("guidance_in.in_layer", v);
    guidance_in.out.visit("guidance_in.out_layer", v);
  }
  img_modulation.visit("double_stream_modulation_img.lin", v);
  txt_modulation.visit("double_stream_modulation_txt.lin", v);
  single_modulation.visit("single_stream_modulation.lin", v);
  for (size_t i = 0; i < double_blocks.size(); ++i) double_blocks[i].visit(fmt::format("double_blocks.{}.", i), v);
  for (size_t i = 0; i < single_blocks.size(); ++i) single_blocks[i].visit(fmt::format("single_blocks.{}.", i), v);
  final_modulation.visit("final_layer.adaLN_modulation.1", v);
  final_linear.visit("final_layer.linear", v);
}

}  // namespace flux2
