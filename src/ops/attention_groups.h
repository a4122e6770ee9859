#pragma once

#include <span>
#include <string>
#include <vector>

#include "tensor/tensor.h"

namespace flux2 {

// Which rows of a sequence see which: every row has a class, and a class sees other classes.
struct RowClasses {
  std::vector<int> of_row;              // [T], of the keys
  std::vector<std::vector<bool>> sees;  // sees[a][b]: queries of class a see keys of class b
};

// The rows of several groups with the same number of rows, one group after the other.
struct RowList {
  int64_t rows = 0;   // of one group
  int64_t first = 0;  // if there are no ids: all rows of all groups lie together, from this one on
  Tensor ids = {};    // I32 [groups · rows]
};

// Attention in which a row sees only some rows. Rows that see the same keys form a group, and each group is a dense attention of
// its own. So time and memory depend on the number of visible pairs, and every device uses its usual attention kernel. Groups of
// the same size are one batch.
struct AttentionGroups {
  struct Batch {
    int64_t groups = 0;
    RowList queries, keys;
  };
  std::vector<Batch> batches;
  int64_t queries = 0, keys = 0;  // rows: S and T
  // I32 [S]: where the result of each row is if all batches write theirs one after the other. Undefined: the queries of every
  // batch lie together, so each batch writes its results where they belong.
  Tensor results;

  int64_t visible_pairs() const;
  // Sizes and places of all lists: two that agree in this differ only in the values of their tensors.
  std::string layout() const;
  std::vector<Tensor*> tensors();  // every one, in a fixed order; some may be undefined
};

// Query i is row queries[i]; or the first `queries` rows are the queries. Every class that a query belongs to must see at least
// one row.
AttentionGroups group_rows(Stream& stream, const RowClasses& classes, std::span<const int32_t> queries);
AttentionGroups group_rows(Stream& stream, const RowClasses& classes, int64_t queries);

// attention() (ops/attention.h) of q [B, S, H, D] with the visible ones of k, v [B, T, G, D], written to y [B, S, H, D]. It has
// no gradient.
void grouped_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionGroups& groups, float scale,
                       const Tensor& y, bool eight_bits = false);

// Rows ids, I32 [N], of x [B, S, C]: [B, N, C]. Without gradient.
Tensor take_rows(const Tensor& x, const Tensor& ids);

}  // namespace flux2
