#pragma once

#include <vector>

#include "weights/weight_source.h"

namespace flux2 {

// Files with 8-bit weights (F8 and I8) store the factors of a weight P.weight in another tensor, whose name depends on the
// program that wrote the file. In all of them value = stored · factor, except for bitsandbytes' SCB, which holds the largest
// value of each row (factor · 127).

// The factors of this weight. Null for other dtypes, for weights that have QuantisedValues, and for weights without factors.
const StoredTensor* scale_beside(const WeightSource& source, const StoredTensor& weight);

// Every tensor that belongs to this weight: its factors, and the fixed input factor that some files contain. The latter is not
// used, because activations get one factor per token, which costs nothing and is at least as accurate.
std::vector<const StoredTensor*> companions_of(const WeightSource& source, const StoredTensor& weight);

// Stored factors must be multiplied by this: 1, except for SCB.
float unit_of(const StoredTensor& scale);

// One factor for each row of the weight [N, K], from a factor for the whole ([], [1], [1, 1]) or for each row ([N], [N, 1]) in
// F32, F16 or BF16. Throws Incompatible for other shapes and BadFile for factors that are negative or not finite.
std::vector<float> row_scales(const StoredTensor& weight, const StoredTensor& scale);

}  // namespace flux2
