#pragma once

#include <vector>

#include "weights/weight_source.h"

namespace flux2 {

// FP8 files keep the factors of a weight P.weight beside it, under the names of whoever wrote them: value = stored · factor,
// whatever the name says.

// The factors of this weight: null for other dtypes and where the stored values are meant as they are.
const StoredTensor* fp8_scale_of(const WeightSource& source, const StoredTensor& weight);

// Every tensor that belongs to this weight: its factors, and the fixed factor of its input that some files carry. The latter
// is not used: activations get a factor for each token while they are made, which costs nothing and is never worse.
std::vector<const StoredTensor*> fp8_companions(const WeightSource& source, const StoredTensor& weight);

// One factor for each row of the weight [N, K], from a factor for the whole ([], [1], [1, 1]) or for each row ([N], [N, 1]) in
// F32, F16 or BF16. Throws Incompatible for other shapes and BadFile for factors that are no finite numbers from zero up.
std::vector<float> fp8_row_scales(const StoredTensor& weight, const StoredTensor& scale);

}  // namespace flux2
