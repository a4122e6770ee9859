#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/tensor.h"

namespace flux2 {

// How the large matrices of a model are kept in memory.
enum class Quant {
  None,  // as stored in the file
  Int8,  // I8 with a scale per row
  Q8_0,  // blocks of 32 with a scale each
  Q4_0,
  Fp8,  // F8_E4M3 with a scale per row
};

const std::vector<std::string>& quant_names();  // "none", "int8", "q8_0", "q4_0", "fp8"
Quant quant_named(std::string_view name);
std::string_view name_of(Quant quant);

DType dtype_of(Quant quant);  // not of None

// Whether a matrix [N, K] can be stored this way: its rows must be whole blocks.
bool can_quantise(const Shape& shape, Quant quant);

// Quantises a matrix [N, K] in host memory (F32, F16 or BF16, rows contiguous); the result carries its scales. Values are rounded
// to nearest. Blocks are bit-identical to ggml's.
Tensor quantise(const Tensor& matrix, Quant quant, ThreadPool& threads);

// The same for a matrix whose rows are read one at a time, on any thread: read(row, out).
Tensor quantise(const Shape& shape, const std::function<void(int64_t, float*)>& read, Quant quant, ThreadPool& threads);

}  // namespace flux2
