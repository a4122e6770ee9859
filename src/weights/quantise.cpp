#include "weights/quantise.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "weights/encode_blocks.h"
#include "weights/read_values.h"
#include "weights/round_values.h"
#include "weights/row_encoders.h"

namespace flux2 {

namespace {

struct Entry {
  Quant quant;
  const char* name;
};
constexpr std::array<Entry, 5> kEntries = {
    {{Quant::None, "none"}, {Quant::Int8, "int8"}, {Quant::Q8_0, "q8_0"}, {Quant::Q4_0, "q4_0"}, {Quant::Fp8, "fp8"}}};

// One row; returns its scale. A row that holds something other than numbers has no scale but NaN, and shows.
float quantise_row(Quant quant, const float* x, int64_t count, std::byte* out) {
  const float largest = is_block_type(dtype_of(quant)) ? 0.0f : row_encoders().largest_magnitude(x, count);
  const auto factor = [&](float range) { return largest > 0.0f ? range / largest : 0.0f; };
  switch (quant) {
    case Quant::Int8: round_to_int8(x, count, factor(127.0f), reinterpret_cast<int8_t*>(out)); return largest / 127.0f;
    case Quant::Fp8: round_to_e4m3(x, count, factor(448.0f), reinterpret_cast<uint8_t*>(out)); return largest / 448.0f;
    case Quant::Q8_0:
    case Quant::Q4_0: encode_blocks(dtype_of(quant), x, count, out); return 1.0f;
    case Quant::None: break;
  }
  fail(ErrorCode::Internal, "nothing to quantise to");
}

}  // namespace

const std::vector<std::string>& quant_names() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Entry& e : kEntries) all.emplace_back(e.name);
    return all;
  }();
  return names;
}

Quant quant_named(std::string_view name) {
  for (const Entry& e : kEntries)
    if (name == e.name) return e.quant;
  fail(ErrorCode::InvalidArgument, "\"{}\" is not one of none, int8, q8_0, q4_0, fp8", name);
}

std::string_view name_of(Quant quant) { return kEntries[static_cast<size_t>(quant)].name; }

DType dtype_of(Quant quant) {
  switch (quant) {
    case Quant::Int8: return DType::I8;
    case Quant::Fp8: return DType::F8_E4M3;
    case Quant::Q8_0: return DType::Q8_0;
    case Quant::Q4_0: return DType::Q4_0;
    case Quant::None: break;
  }
  fail(ErrorCode::Internal, "no quantisation has no dtype");
}

bool can_quantise(const Shape& shape, Quant quant) {
  return quant != Quant::None && shape.rank() == 2 && shape[1] % info(dtype_of(quant)).block_elements == 0;
}

Tensor quantise(const Shape& shape, const std::function<void(int64_t, float*)>& read, Quant quant, ThreadPool& threads) {
  require(can_quantise(shape, quant), "a weight of shape {} cannot be kept as {}", shape, name_of(quant));
  const int64_t rows = shape[0], columns = shape[1], row_bytes = bytes_for(dtype_of(quant), columns);
  const Tensor out = Tensor::host_empty(dtype_of(quant), shape);
  const bool scaled = !is_block_type(dtype_of(quant));
  const Tensor scales = scaled ? Tensor::host_empty(DType::F32, {rows}) : Tensor();
  threads.parallel_ranges(rows, 16, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t r = begin; r < end; ++r) {
      read(r, row.data());
      const float scale = quantise_row(quant, row.data(), columns, out.data<std::byte>() + r * row_bytes);
      if (scaled) scales.data<float>()[r] = scale;
    }
  });
  return out.with_scales(scales);
}

Tensor quantise(const Tensor& matrix, Quant quant, ThreadPool& threads) {
  const auto read = [&](int64_t row, float* out) {
    const std::byte* from = matrix.data<std::byte>() + bytes_for(matrix.dtype(), row * matrix.stride(0));
    read_values(matrix.dtype(), from, matrix.dim(1), out);
  };
  return quantise(matrix.shape(), read, quant, threads);
}

}  // namespace flux2
