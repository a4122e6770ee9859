#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace flux2 {

// How the values of a matrix become what a file holds.
enum class Packing {
  None,         // as elements or blocks of the type
  TensorScale,  // in 8 bits, with one scale for the whole: BFL's and ComfyUI's FP8
  RowScales,    // with one for each row: int8
  BlockScales,  // with one for 128 × 128 elements: Qwen3-FP8
  Nvfp4,        // in 4 bits, two to a byte, with a scale for 16 columns and one for the whole
};

struct StorageType {
  DType dtype = DType::BF16;  // of the stored elements
  Packing packing = Packing::None;

  std::string name() const;  // "Q4_K", "NVFP4"
  bool operator==(const StorageType&) const = default;
};

constexpr int64_t kScaleBlock = 128;  // the side of BlockScales

// What weights are stored as. Empty: as they are, or BF16 where the file cannot hold that.
using StoredAs = std::optional<StorageType>;
const std::vector<std::string>& stored_as_names();  // "keep", "f32", …, "fp8", "fp8_block", "nvfp4", "int8", "q8_0", …
StoredAs stored_as_named(std::string_view name);

}  // namespace flux2
