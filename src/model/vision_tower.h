#pragma once

#include <string>
#include <vector>

#include "model/taps.h"
#include "model/vision_config.h"
#include "nn/linear.h"
#include "nn/rope_table.h"

namespace flux2 {

// x ← x + W_o attention(…);  x ← x + W_down (silu(W_gate x) ⊙ W_up x), each after an RMSNorm. Every patch sees every other one.
struct VisionLayer {
  VisionLayer() = default;
  explicit VisionLayer(const VisionConfig& config);

  Tensor operator()(const Tensor& x, const Rope& rope) const;
  void visit(const std::string& prefix, const ParameterVisitor& visitor);

  int64_t heads = 0, head_dim = 0;
  Tensor attention_norm, ffn_norm;  // [hidden]
  Linear q, k, v, o, gate, up, down;
};

// Pixtral's vision tower with Mistral 3's projector: it turns the patches of one image into tokens of the language model.
struct VisionTower {
  explicit VisionTower(const VisionConfig& config);

  // patches [rows · columns, patch · patch · 3]: normalised samples, those of a patch by row, column and channel (see
  // image/vision_prep.h). Returns the last block's output [1, rows · columns, hidden]; there is no norm behind it.
  Tensor operator()(const Tensor& patches, int64_t rows, int64_t columns, const BeforeBlock& before_layer = {}) const;

  // Groups of merge × merge patches as tokens of the language model: [1, rows · columns / merge², text_hidden], row by row.
  Tensor project(const Tensor& states, int64_t rows, int64_t columns) const;

  void visit(const ParameterVisitor& visitor);

  VisionConfig config;
  Tensor patch_conv;  // [hidden, patch, patch, 3]
  Tensor ln_pre;      // [hidden]
  std::vector<VisionLayer> layers;
  Tensor projector_norm;  // [hidden]
  Linear merger, linear_1, linear_2;
};

// Positions of a grid, row by row, for heads of this width: the frequencies theta^(−2i/D) with even i turn by the row, those
// with odd i by the column. Angles are formed in f32, as transformers does.
Rope grid_rope(Stream& stream, int64_t rows, int64_t columns, int64_t head_dim, double theta);

}  // namespace flux2
