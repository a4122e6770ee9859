#pragma once

#include <memory>
#include <string_view>

#include "base/json.h"
#include "weights/quantised_values.h"
#include "weights/stored_tensor.h"

namespace flux2 {

// The kinds of quantised weights. Each keeps copies of its StoredTensors (views of mapped files) and throws BadFile or
// Incompatible if the tensors do not fit together.

// F8 or I8 [N, K] times scales: [], [1], [1, 1] for the whole, [N] or [N, 1] for rows, [1, K] for columns, blocks
// [⌈N / b⌉, ⌈K / c⌉] with sides that are powers of two, groups [N, K / B, 1]. `factor` multiplies every scale.
std::shared_ptr<const QuantisedValues> scaled_values(const StoredTensor& weight, const StoredTensor& scale, float factor = 1.0f);

// Whether there is one scale per tensor or per row, so that Tensor::scales() can hold them.
bool scales_rows(const StoredTensor& weight, const StoredTensor& scale);

// 4-bit codes [N, K / 2] with one e4m3 scale per 16 columns and one f32 scale for the tensor. Tiled: the even column is in the
// high nibble and scales are in the tile order of tensor cores (BFL, ComfyUI). Linear: the even column is in the low nibble and
// scales are in rows (others).
enum class Nvfp4Order { Tiled, Linear };
struct Nvfp4Parts {
  StoredTensor codes, scales, global;
  const StoredTensor* input_factors = nullptr;  // pre_quant_scale [K]: for the activations; multiplied into the weight here
};
std::shared_ptr<const QuantisedValues> nvfp4_values(const Nvfp4Parts& parts, Nvfp4Order order);

// Where the scale of row r and block of columns c lies among tiles of 128 × 4.
int64_t tiled_scale_offset(int64_t r, int64_t c, int64_t blocks_per_row);

// bitsandbytes: `state` is the JSON stored with the weight; only it knows the shape.
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
