#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"
#include "weights/weight_source.h"

namespace flux2 {

// The scales of a quantised matrix.
enum class Scales {
  None,    // plain elements, or blocks that hold their own
  Tensor,  // one for the whole matrix: the FP8 of BFL and ComfyUI
  Rows,    // one for each row: int8
  Blocks,  // one for 128 × 128 elements: Qwen3-FP8
  Nvfp4,   // one for 16 columns and one for the whole; two elements of 4 bits share a byte
};

// How a file stores the values of a matrix. Plain floats are included.
struct Quantisation {
  DType dtype = DType::BF16;  // of the stored elements
  Scales scales = Scales::None;

  std::string name() const;  // "Q4_K", "NVFP4"
  bool operator==(const Quantisation&) const = default;
};

constexpr int64_t kScaleBlock = 128;  // the side of Scales::Blocks

const std::vector<std::string>& quantisation_names();  // "keep", "f32", …, "fp8", "fp8_block", "nvfp4", "int8", "q8_0", …
// Nothing for "keep": each weight as it is, or BF16 where the file cannot hold that.
std::optional<Quantisation> quantisation_named(std::string_view name);

// How the weights under a prefix are quantised ("bf16", "fp8", "q4_k, mixed"): the kind with most bytes, and "mixed" when
// there are several quantised kinds.
std::string quantisation_label(const WeightSource& source, const std::string& prefix);

}  // namespace flux2
