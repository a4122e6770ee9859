#pragma once

#include <memory>
#include <string_view>

#include "base/json.h"
#include "weights/quantised_values.h"
#include "weights/stored_tensor.h"

namespace flux2 {

// The kinds of quantised weights. Each keeps copies of what it reads (views of mapped files) and throws BadFile or Incompatible
// when the tensors do not fit one another.

// F8 or I8 [N, K] times scales: [], [1], [1, 1] for the whole, [N] or [N, 1] for rows, [1, K] for columns, blocks
// [⌈N / b⌉, ⌈K / c⌉] with sides that are powers of two, groups [N, K / B, 1]. `factor` multiplies every scale.
std::shared_ptr<const QuantisedValues> scaled_values(const StoredTensor& weight, const StoredTensor& scale, float factor = 1.0f);

// Whether the scales are one for the whole or one for each row, which tensors carry themselves.
bool scales_rows(const StoredTensor& weight, const StoredTensor& scale);

// Codes of 4 bits [N, K / 2] with an e4m3 scale for each 16 columns and an f32 one for all. Files of BFL and ComfyUI have
// the even column in the high nibble and the scales in the tiles that tensor cores read; others the low nibble and rows.
enum class Nvfp4Order { Tiled, Linear };
struct Nvfp4Parts {
  StoredTensor codes, scales, global;
  const StoredTensor* input_factors = nullptr;  // pre_quant_scale [K]: meant for the activations, taken into the weight
};
std::shared_ptr<const QuantisedValues> nvfp4_values(const Nvfp4Parts& parts, Nvfp4Order order);

// Where the scale of row r and block of columns c lies among tiles of 128 × 4.
int64_t tiled_scale_offset(int64_t r, int64_t c, int64_t blocks_per_row);

// bitsandbytes: the state is the JSON beside the weight; `shape` is in it alone.
struct BnbParts {
  StoredTensor codes, absmax, map;
  const StoredTensor *nested_absmax = nullptr, *nested_map = nullptr;
  Json state;
};
Shape bnb_shape(const BnbParts& parts);
std::shared_ptr<const QuantisedValues> bnb_values(const BnbParts& parts);

// Values whose groups of G columns were rotated by R = H4 ⊗ H4 ⊗ …, which is its own inverse.
std::shared_ptr<const QuantisedValues> rotated_back(std::shared_ptr<const QuantisedValues> values, int64_t columns,
                                                    int64_t group);
void rotate(float* group, int64_t size);  // in place, x · R

}  // namespace flux2
