#pragma once

#include <string>
#include <vector>

#include "nn/rope_table.h"
#include "ops/attention_groups.h"

namespace flux2 {

// Which tokens see which, for images with prompts of regions. The image's tokens are sorted, so that those that see the same lie
// together, first the target, then the references. Attention works in an order of its own, in which also a region's text and
// references lie beside its area. So most of the attention reads and writes without copies.
struct TokenGroups {
  // Tokens that lie together in both orders: `rows` of the text or of the image, from `first` on.
  struct Piece {
    bool is_text = false;
    int64_t first = 0, rows = 0;
  };
  std::vector<Piece> pieces;   // in the order of attention
  Tensor order;                // I32 [I + references]: which token of the image is at each place
  Tensor back;                 // I32 [I]: the place of each of the target's tokens
  Tensor text, image, target;  // I32: the place of each token of the sorted streams in the order of attention
  Rope rope, target_rope;      // in the order of attention, and of the target alone in that order
  AttentionGroups all, last;   // of all tokens; and of the last block, where only the target's tokens are queries

  // Both streams in the order of attention: [B, S, …]; and for the norms of queries and keys.
  Tensor joined(const Tensor& txt, const Tensor& img) const;
  std::vector<NormedPair> joined(const NormedPair& txt, const NormedPair& img) const;
  // Text and image of x [B, S, C], which is in the order of attention.
  std::vector<Tensor> streams(const Tensor& x) const { return {take_rows(x, text), take_rows(x, image)}; }

  std::vector<Tensor*> tensors();  // as in AttentionGroups
  std::string layout() const;      // as in AttentionGroups
};

}  // namespace flux2
