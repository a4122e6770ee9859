#pragma once

#include <optional>
#include <span>

#include "tensor/tensor.h"
#include "weights/shard.h"
#include "weights/stored_tensor.h"

namespace flux2 {

// Some rows (indices of the first axis) of a stored tensor; a tensor without axes is one row.
struct StoredRows {
  const StoredTensor* tensor = nullptr;
  IndexRange rows;
};

// The type we compute with. Throws Incompatible naming the stored type when there is none.
DType dtype_of(const StoredTensor& tensor);

IndexRange all_rows(const StoredTensor& tensor);

// One row of any type as f32; for a tensor without axes, its only element.
void read_row(const StoredTensor& tensor, int64_t row, float* out);

// A host tensor of `shape` whose rows are the given ones, in order, cut down to the shard. If the bytes are contiguous and
// aligned for their type, the tensor is a view that keeps the mapped file alive; otherwise it is a copy. The pieces must agree in
// dtype and row size and together fill `shape`. Weights with QuantisedValues become BF16 or, with InBlocks, the block type that
// holds them in less memory if all pieces have the same one.
enum class Quantised { AsBf16, InBlocks };
Tensor open_tensor(std::span<const StoredRows> pieces, const Shape& shape, const Shard& shard = {},
                   Quantised quantised = Quantised::AsBf16);
std::optional<DType> block_type_of(std::span<const StoredRows> pieces);
Tensor open_tensor(const StoredTensor& tensor, const Shard& shard = {});

}  // namespace flux2
