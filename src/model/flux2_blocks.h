#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/flux2_config.h"
#include "model/token_groups.h"
#include "nn/linear.h"
#include "nn/rope_table.h"
#include "ops/attention.h"

namespace flux2 {

// The modulation of one norm and its branch, computed from the conditioning vector; each [B, 1, C].
struct Modulation {
  Tensor shift, scale, gate;
};

// RMSNorm weights of queries and keys, each [128], shared by all heads.
struct QkNorm {
  Tensor q_scale, k_scale;
  NormedPair operator()(const Tensor& qk) const { return {qk, q_scale, k_scale}; }
  void visit(const std::string& prefix, const ParameterVisitor& visitor);
};

struct Heads {
  Tensor qk, v;  // queries and keys [B, S, 2H, D], values [B, S, H, D]
};

// Keys and values after norm and rope, [B, S, H, D].
struct KeyValue {
  Tensor k, v;
};

// How the attention of a block rounds: to bf16, to 8 bits (e4m3), or to 8 bits in blocks whose weights are e4m3. Only where the
// device has such an attention (Device::attends_in_8_bits).
enum class AttentionBits { Sixteen, Eight, AsWeights };
std::string_view name_of(AttentionBits bits);  // bf16, fp8, auto: the values of the setting "attention"
AttentionBits attention_named(std::string_view name);

// Extra inputs and outputs of attention: keys and values of other tokens (batch B or 1) that it also sees, and its own keys and
// values for others.
struct Attending {
  const KeyValue* others = nullptr;
  KeyValue* own = nullptr;
  KeptAttention* kept = nullptr;        // see ops/attention.h
  Values values = Values::Needed;       // of the block's outputs
  const TokenGroups* groups = nullptr;  // which tokens see which; null: all see all
  // Image prompts [B, P, H, D], which the first `targets` tokens of the image stream see at the end of a double block, each in an
  // attention of its own.
  std::vector<KeyValue> image_prompts = {};
  int64_t targets = 0;
  AttentionBits bits = AttentionBits::Sixteen;

  // For ops, in a block with this layer.
  AttentionOptions options(const Linear& layer) const;
};

// Cuts [B, S, 3·H·D] into queries and keys, and values.
Heads split_heads(const Tensor& qkv);

// Text and image in one sequence; attention and MLP side by side.
struct SingleBlock {
  SingleBlock() = default;
  explicit SingleBlock(const Flux2Config& config, Communicator* ranks = nullptr);

  Tensor operator()(const Tensor& x, const Rope& rope, const Modulation& m, const Attending& attending = {}) const;
  // What the block adds to x, before the gate, from n = modulated_norm(x).
  Tensor branch(const Tensor& n, const Rope& rope, const Attending& attending = {}) const;
  // What it adds to the target's tokens alone: n_target are their rows of n, rope_target those of the rope. The other tokens are
  // seen by them. Only where in.change is not set.
  Tensor target_branch(const Tensor& n, const Tensor& n_target, const Rope& rope, const Rope& rope_target,
                       const Attending& attending = {}) const;
  KeyValue keys_and_values(const Tensor& n, const Rope& rope) const;  // on the same condition
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

  int64_t dim = 0, hidden = 0;  // this rank's share of the attention and MLP widths
  Linear in, out;               // linear1: [q k v gate up], linear2: [attention ‖ mlp]
  QkNorm norm;
};

// One of the two streams of a double block: its own projections, MLP and modulation.
struct DoubleStream {
  DoubleStream() = default;
  explicit DoubleStream(const Flux2Config& config);

  Heads heads(const Tensor& x, const Modulation& m) const;
  // x after the attention's output a and the MLP have been added.
  Tensor finish(const Tensor& x, const Tensor& a, const Modulation& attention, const Modulation& mlp,
                Values values = Values::Needed) const;
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

  Linear qkv, proj, mlp_in, mlp_out;
  QkNorm norm;
};

// Text and image keep their own weights and meet in one attention, text first.
struct DoubleBlock {
  DoubleBlock() = default;
  explicit DoubleBlock(const Flux2Config& config) : img(config), txt(config) {}

  struct Streams {
    Tensor img, txt;
  };
  struct Modulations {
    Modulation attention, mlp;
  };
  Streams operator()(const Streams& x, const Rope& rope, const Modulations& img_mod, const Modulations& txt_mod,
                     const Attending& attending = {}) const;
  // The image stream alone, as if there were no text.
  Tensor image_only(const Tensor& x, const Rope& rope, const Modulations& m, const Attending& attending) const;
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

  DoubleStream img, txt;
};

// The output of a modulation layer [B, n·H] as n tensors [B, 1, H] that broadcast over tokens.
std::vector<Tensor> modulation_chunks(const Tensor& m, int n);
DoubleBlock::Modulations split_double_modulation(const Tensor& m);  // n = 6
Modulation split_single_modulation(const Tensor& m);                // n = 3

}  // namespace flux2
