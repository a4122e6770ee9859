#pragma once

#include <span>
#include <vector>

#include "autograd/checkpoint.h"
#include "model/block_schedule.h"
#include "model/flux2_blocks.h"
#include "model/taps.h"

namespace flux2 {

// Keys and values of reference tokens in every block, double blocks first.
using ReferenceKeys = std::vector<KeyValue>;

// Images that serve as prompts, as the transformer takes them (model/image_prompt.h).
struct ImagePromptInputs {
  Tensor tokens;                            // [B, P, H]: rows of the image stream behind all others; undefined without
  std::vector<std::vector<KeyValue>> keys;  // for each image: what the target's tokens see in each double block. The values
                                            // [B, P, heads, 128] are already multiplied by the strength.

  std::vector<Tensor*> tensors();  // all that are defined, in a fixed order
};

// What a block keeps until its gradient is computed.
struct BlockMemory {
  bool recompute = false;       // only its inputs: the block runs once more for its gradient
  bool keep_attention = false;  // with `recompute`: also the result of attention, which is then not computed again
};

// The FLUX.2 diffusion transformer: a velocity for every latent token from noisy latents, time and text.
// Plain layers, immutable once loaded, shared by many sessions.
struct Flux2Transformer {
  explicit Flux2Transformer(const Flux2Config& config);

  // The part of the input that depends on the prompt alone: ctx [B, T, Cctx] → [B, T, H].
  Tensor embed_text(const Tensor& ctx) const { return txt_in(ctx); }

  // The conditioning vector [B, H] from sinusoids [B, 256] of time and, for models that take it, of guidance.
  Tensor condition(const Tensor& time, const Tensor& guidance) const;

  struct Inputs {
    Tensor x;                                   // [B, I, 128] latent tokens: target first, then references
    Tensor vec;                                 // [B, H] from condition()
    Tensor txt;                                 // [B, T, H] from embed_text()
    const Rope& rope;                           // over text, then image positions, then tokens of image prompts
    int64_t keep = 0;                           // how many image tokens need a velocity; 0: all
    const ReferenceKeys* references = nullptr;  // seen by all tokens, when they are not among x
    // If defined, the tokens of x behind the first `keep` are references with a conditioning vector of their own [B, H], that of
    // time 0. Only klein-9B-KV was trained so.
    Tensor reference_vec;
    bool references_apart = false;                     // and see only each other, as in klein-9B-KV
    const ImagePromptInputs* image_prompts = nullptr;  // not with reference_vec; their tokens not with groups
    const TokenGroups* groups = nullptr;               // which tokens see which; only without gradients and reference_vec
    bool checkpoint_blocks = false;                    // for gradients: save memory by running each block twice
    std::span<const BlockMemory> block_memory = {};    // the same for each block by itself; empty: as checkpoint_blocks says
    InputStore* input_store = nullptr;                 // where the inputs of blocks that run twice are kept; null: they stay
    Taps taps;
    BeforeBlock before_block = {};
  };
  Tensor operator()(const Inputs& inputs) const;  // velocity [B, keep, 128]

  // klein-9B-KV: the keys and values of references x [B, Nr, 128]. References see only each other, at time 0, whose conditioning
  // vector is `vec` [B, H]. The result therefore does not depend on step, prompt or noise.
  ReferenceKeys reference_keys(const Tensor& x, const Tensor& vec, const Rope& rope, const BeforeBlock& before_block = {}) const;

  void visit(const ParameterVisitor& visitor);

  struct TimeMlp {
    Linear in, out;
    Tensor operator()(const Tensor& sinusoid) const;
  };

  Flux2Config config;
  Linear img_in, txt_in;
  TimeMlp time_in, guidance_in;
  Linear img_modulation, txt_modulation, single_modulation;  // one set for all blocks of a kind
  std::vector<DoubleBlock> double_blocks;
  std::vector<SingleBlock> single_blocks;
  Linear final_modulation, final_linear;
  AttentionBits attention_bits = AttentionBits::Sixteen;  // of passes that need no gradient
  std::shared_ptr<BlockSchedule> schedule;                // when not all blocks are in memory; double blocks come first

 private:
  void check_image_prompts(const Inputs& inputs) const;
  Tensor with_reference_vec(const Inputs& inputs) const;
};

}  // namespace flux2
