#include <cstring>

#include "backend/cpu/kernels/rows.h"
#include "backend/cpu/kernels/scalar_table.h"

namespace flux2::cpu {

namespace {

constexpr int64_t kPiece = 1024;

bool is_integer(DType dtype) { return dtype >= DType::I8 && dtype <= DType::Bool; }

// Calls body(y offset, x offset, y step, x step, n) for pieces of at most kPiece elements, in parallel.
template <class F>
void for_piece_offsets(const Tensor& x, const Tensor& y, F&& body) {
  Walk<2> walk(y.shape(), {y.strides(), x.strides()});
  const auto split = walk.split_innermost();
  const int64_t length = split.first, y_step = split.second[0], x_step = split.second[1];
  const int64_t pieces = (length + kPiece - 1) / kPiece;
  parallel_rows(cpu_stream(y), walk.count() * pieces, std::min(length, kPiece), [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const auto [to, from] = walk.at(piece / pieces);
      const int64_t start = piece % pieces * kPiece;
      body(to + start * y_step, from + start * x_step, y_step, x_step, std::min(kPiece, length - start));
    }
  });
}

template <class Bits>
void copy_bits(const Tensor& x, const Tensor& y) {
  for_piece_offsets(x, y, [&](int64_t to, int64_t from, int64_t y_step, int64_t x_step, int64_t n) {
    Bits* out = y.data<Bits>() + to;
    const Bits* in = x.data<Bits>() + from;
    if (y_step == 1 && x_step == 1) std::memcpy(out, in, static_cast<size_t>(n) * sizeof(Bits));
    else
      for (int64_t i = 0; i < n; ++i) out[i * y_step] = in[i * x_step];
  });
}

// Through values that hold every element of both dtypes.
template <class V>
void copy_values(const Tensor& x, const Tensor& y) {
  for_piece_offsets(x, y, [&](int64_t to, int64_t from, int64_t y_step, int64_t x_step, int64_t n) {
    V values[kPiece];
    load(x.dtype(), element(x, from), x_step, n, values);
    store(y.dtype(), values, element(y, to), y_step, n);
  });
}

// A block is only whole in the source, so pieces are runs of whole blocks of one row of y.
void copy_blocks(const Tensor& x, const Tensor& y) {
  const int64_t length = y.dim(-1);
  const auto rows = rows_of(y);
  parallel_rows(cpu_stream(y), rows.count(), length, [&](int64_t begin, int64_t end) {
    std::vector<float> values(static_cast<size_t>(length));
    for (int64_t r = begin; r < end; ++r) {
      load(x.dtype(), element(x, r * length), 1, length, values.data());
      store(y.dtype(), values.data(), element(y, rows.at(r)[0]), y.stride(-1), length);
    }
  });
}

}  // namespace

void copy(const CopyArgs& a) {
  if (is_block_type(a.x.dtype()) && a.x.dtype() == a.y.dtype()) {
    std::memcpy(a.y.raw(), a.x.raw(), static_cast<size_t>(a.x.bytes()));
  } else if (is_block_type(a.x.dtype())) {
    copy_blocks(a.x, a.y);
  } else if (a.x.dtype() == a.y.dtype()) {
    switch (info(a.x.dtype()).block_bytes) {
      case 1: return copy_bits<uint8_t>(a.x, a.y);
      case 2: return copy_bits<uint16_t>(a.x, a.y);
      case 4: return copy_bits<uint32_t>(a.x, a.y);
      default: return copy_bits<uint64_t>(a.x, a.y);
    }
  } else if (is_integer(a.x.dtype()) && is_integer(a.y.dtype())) {
    copy_values<int64_t>(a.x, a.y);
  } else if (is_float(a.x.dtype()) && is_float(a.y.dtype()) && a.x.dtype() != DType::F64 && a.y.dtype() != DType::F64) {
    copy_values<float>(a.x, a.y);
  } else {
    copy_values<double>(a.x, a.y);
  }
}

void fill(const FillArgs& a) {
  Walk<1> walk(a.y.shape(), {a.y.strides()});
  const auto split = walk.split_innermost();
  const int64_t length = split.first, step = split.second[0], pieces = (length + kPiece - 1) / kPiece;
  const std::vector<double> values(static_cast<size_t>(std::min(length, kPiece)), a.value);
  parallel_rows(cpu_stream(a.y), walk.count() * pieces, std::min(length, kPiece), [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t start = piece % pieces * kPiece;
      std::byte* to = element(a.y, walk.at(piece / pieces)[0] + start * step);
      store(a.y.dtype(), values.data(), to, step, std::min(kPiece, length - start));
    }
  });
}

}  // namespace flux2::cpu
