#pragma once

#include "model/decoder.h"

namespace flux2 {

// Keys and values of all tokens in one layer, [1, T, G, D] each, with the row of the newest one.
struct TokenPlace {
  TokenKeys all;
  int64_t row = 0;
};

// What a layer needs to know about a single new token. Weights and the rows of earlier tokens must be at rest (ops/token.h).
struct TokenPass {
  const Rope& rope;  // of its position
  Tensor key_mask;   // I32 [1, T], 0 hides a key; undefined: all are visible
  TokenPlace place;  // where its key and value are written
};

// Whether the layer can compute a token like x [1, 1, hidden] in the five kernels of ops/token.h.
bool has_token_kernels(const DecoderLayer& layer, const Tensor& x);
// The layer in these kernels.
Tensor token_layer(const DecoderLayer& layer, const Tensor& x, const TokenPass& pass);

}  // namespace flux2
