#pragma once

#include <vector>

#include "weights/weight_source.h"

namespace flux2 {

// Files with weights in 8 bits (F8 and I8) keep the factors of a weight P.weight beside it, under the names of whoever wrote
// them: value = stored · factor, whatever the name says; bitsandbytes' SCB holds the largest values of rows instead, factors
// times 127.

// The factors of this weight: null for other dtypes, for weights that have QuantisedValues and where the stored values are meant
// as they are.
const StoredTensor* scale_beside(const WeightSource& source, const StoredTensor& weight);

// Every tensor that belongs to this weight: its factors, and the fixed factor of its input that some files carry. The latter
// is not used: activations get a factor for each token while they are made, which costs nothing and is never worse.
std::vector<const StoredTensor*> companions_of(const WeightSource& source, const StoredTensor& weight);

// What stored factors must be multiplied with: 1 but for SCB.
float unit_of(const StoredTensor& scale);

// One factor for each row of the weight [N, K], from a factor for the whole ([], [1], [1, 1]) or for each row ([N], [N, 1]) in
// F32, F16 or BF16. Throws Incompatible for other shapes and BadFile for factors that are no finite numbers from zero up.
std::vector<float> row_scales(const StoredTensor& weight, const StoredTensor& scale);

}  // namespace flux2
