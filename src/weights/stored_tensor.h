#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/mapped_file.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace flux2 {

class QuantisedValues;

// Whether memory can be read in place as elements of that type; a block needs the alignment of the scale inside it.
inline bool is_aligned(const void* data, DType dtype) {
  const size_t alignment = is_block_type(dtype) ? alignof(f16) : static_cast<size_t>(info(dtype).block_bytes);
  return reinterpret_cast<uintptr_t>(data) % alignment == 0;
}

// A tensor in a file: row-major, little-endian, not necessarily aligned.
struct StoredTensor {
  std::string name;
  std::string dtype_name;      // as the file writes it
  std::optional<DType> dtype;  // empty when we cannot compute with that type: an error only once the tensor is opened
  Shape shape;
  std::span<const std::byte> bytes;
  std::shared_ptr<const MappedFile> file = {};  // keeps `bytes` alive; empty when they belong to the caller
  // Set for a weight that is quantised with the help of other tensors: `bytes` are codes; dtype and shape are those of the
  // values.
  std::shared_ptr<const QuantisedValues> quantised = {};

  // The format guarantees no alignment; unaligned tensors are copied when they are opened.
  bool aligned() const { return dtype && !quantised && is_aligned(bytes.data(), *dtype); }
};

}  // namespace flux2
