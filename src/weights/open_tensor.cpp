#include "weights/open_tensor.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "weights/quantised_values.h"
#include "weights/read_values.h"

namespace flux2 {

namespace {

// The format is little-endian and so is every machine we build for; a view needs no conversion.
static_assert(std::endian::native == std::endian::little);

int64_t rows_of(const Shape& shape) { return shape.rank() == 0 ? 1 : shape[0]; }

// Bytes of one index of the first axis.
int64_t row_bytes(DType dtype, const Shape& shape) {
  if (shape.rank() == 0) return bytes_for(dtype, 1);
  return bytes_for(dtype, shape.with(0, 1).numel());
}

// One contiguous stretch of file bytes.
using Run = std::span<const std::byte>;

void add_run(std::vector<Run>& runs, Run run) {
  if (run.empty()) return;
  if (!runs.empty() && runs.back().data() + runs.back().size() == run.data())
    runs.back() = {runs.back().data(), runs.back().size() + run.size()};
  else runs.push_back(run);
}

// Byte ranges inside one row that a shard of an inner axis keeps.
std::vector<IndexRange> inner_ranges(DType dtype, const Shape& shape, int axis, const Shard& shard) {
  const DTypeInfo& d = info(dtype);
  const bool last = axis == shape.rank() - 1;
  const auto kept = shard.ranges(shape[axis], last ? d.block_elements : 1);
  int64_t repeat = 1, step = 1;  // the axis occurs `repeat` times in a row; one index of it spans `step` elements
  for (int i = 1; i < axis; ++i) repeat *= shape[i];
  for (int i = axis + 1; i < shape.rank(); ++i) step *= shape[i];
  std::vector<IndexRange> ranges;
  for (int64_t r = 0; r < repeat; ++r)
    for (const IndexRange& k : kept)
      ranges.push_back(
          {bytes_for(dtype, (r * shape[axis] + k.begin) * step), bytes_for(dtype, (r * shape[axis] + k.end) * step)});
  return ranges;
}

// The stretches that hold rows [wanted) of the joined pieces, `inside` of each row.
void collect(std::vector<Run>& runs, std::span<const StoredRows> pieces, IndexRange wanted, int64_t bytes_per_row,
             std::span<const IndexRange> inside) {
  int64_t start = 0;  // row of the joined tensor at which the piece begins
  for (const StoredRows& piece : pieces) {
    const IndexRange here{std::max(wanted.begin, start), std::min(wanted.end, start + piece.rows.size())};
    const int64_t first = piece.rows.begin - start;
    start += piece.rows.size();
    if (here.begin >= here.end) continue;
    const auto at = [&](int64_t row, int64_t byte) { return static_cast<size_t>((row + first) * bytes_per_row + byte); };
    if (inside.empty()) {
      add_run(runs, piece.tensor->bytes.subspan(at(here.begin, 0), static_cast<size_t>(here.size() * bytes_per_row)));
      continue;
    }
    for (int64_t row = here.begin; row < here.end; ++row)
      for (const IndexRange& r : inside)
        add_run(runs, piece.tensor->bytes.subspan(at(row, r.begin), static_cast<size_t>(r.size())));
  }
}

bool is_quantised(const StoredRows& piece) { return piece.tensor->quantised != nullptr; }

// Columns that a shard of the second axis keeps; all of them for others.
std::vector<IndexRange> kept_columns(const Shape& shape, const Shard& shard, int block) {
  if (shard.whole() || shape.axis_of(shard.axis) == 0) return {{0, shape[1]}};
  return shard.ranges(shape[1], block);
}

// The rows of a matrix that a shard keeps, in the pieces they come from.
std::vector<StoredRows> kept_rows(std::span<const StoredRows> pieces, const Shape& shape, const Shard& shard) {
  const bool by_rows = !shard.whole() && shape.axis_of(shard.axis) == 0;
  const auto kept = by_rows ? shard.ranges(shape[0]) : std::vector<IndexRange>{{0, shape[0]}};
  std::vector<StoredRows> wanted;
  int64_t start = 0;
  for (const StoredRows& piece : pieces) {
    const StoredTensor& t = *piece.tensor;
    if (!t.dtype || !is_readable(*t.dtype) || t.shape.rank() != 2 || t.shape[1] != shape[1] || piece.rows.begin < 0 ||
        piece.rows.end > t.shape[0])
      fail(ErrorCode::BadFile, "tensor {} is {} {} and cannot be part of a matrix {}", t.name, t.dtype_name, t.shape, shape);
    for (const IndexRange& r : kept) {
      const int64_t begin = std::max(r.begin, start), end = std::min(r.end, start + piece.rows.size()),
                    shift = piece.rows.begin - start;
      if (begin < end) wanted.push_back({&t, {begin + shift, end + shift}});
    }
    start += piece.rows.size();
  }
  require(start == shape[0], "{} rows for a tensor of shape {}", start, shape);
  return wanted;
}

// A matrix of which at least one piece is quantised, as BF16 or in the block type that all pieces have. Rows are converted a few
// at a time.
Tensor open_quantised(std::span<const StoredRows> pieces, const Shape& shape, const Shard& shard, DType dtype) {
  require(shape.rank() == 2, "quantised weights of shape {}", shape);
  const std::vector<StoredRows> wanted = kept_rows(pieces, shape, shard);
  const auto columns = kept_columns(shape, shard, info(dtype).block_elements);
  int64_t rows = 0, width = 0;
  for (const StoredRows& piece : wanted) rows += piece.rows.size();
  for (const IndexRange& c : columns) width += c.size();

  const Tensor result = Tensor::host_empty(dtype, {rows, width});
  const int64_t stored_bytes = bytes_for(dtype, shape[1]), kept_bytes = bytes_for(dtype, width);
  ThreadPool threads(result.numel() < (1 << 20) ? 1 : 0);
  int64_t first = 0;
  for (const StoredRows& piece : wanted) {
    threads.parallel_ranges(piece.rows.size(), 16, [&](int64_t begin, int64_t end) {
      std::vector<float> row(static_cast<size_t>(shape[1]));
      std::vector<std::byte> blocks(static_cast<size_t>(stored_bytes));
      for (int64_t r = begin; r < end; ++r) {
        std::byte* to = result.data<std::byte>() + (first + r) * kept_bytes;
        if (dtype == DType::BF16) {
          read_row(*piece.tensor, piece.rows.begin + r, row.data());
          auto* values = reinterpret_cast<bf16*>(blocks.data());
          for (int64_t i = 0; i < shape[1]; ++i) values[i] = to_bf16(row[static_cast<size_t>(i)]);
        } else {
          piece.tensor->quantised->blocks(piece.rows.begin + r, blocks.data());
        }
        for (const IndexRange& c : columns) {
          std::memcpy(to, blocks.data() + bytes_for(dtype, c.begin), static_cast<size_t>(bytes_for(dtype, c.size())));
          to += bytes_for(dtype, c.size());
        }
      }
    });
    first += piece.rows.size();
  }
  return result;
}

void check_pieces(std::span<const StoredRows> pieces, DType dtype, const Shape& shape, int64_t bytes_per_row) {
  int64_t rows = 0;
  for (const StoredRows& piece : pieces) {
    const StoredTensor& t = *piece.tensor;
    if (t.dtype != dtype || piece.rows.begin < 0 || piece.rows.end > rows_of(t.shape) ||
        static_cast<int64_t>(t.bytes.size()) != rows_of(t.shape) * bytes_per_row)
      fail(ErrorCode::BadFile, "tensor {} is {} {} and cannot be part of a {} {}", t.name, t.dtype_name, t.shape, name_of(dtype),
           shape);
    rows += piece.rows.size();
  }
  require(rows == rows_of(shape), "{} rows for a tensor of shape {}", rows, shape);
}

}  // namespace

DType dtype_of(const StoredTensor& tensor) {
  if (!tensor.dtype)
    fail(ErrorCode::Incompatible, "tensor {} is stored as {}, which is not supported", tensor.name, tensor.dtype_name);
  return *tensor.dtype;
}

void read_row(const StoredTensor& t, int64_t row, float* out) {
  if (t.quantised) return t.quantised->rows(row, row + 1, out);
  const int64_t bytes = row_bytes(dtype_of(t), t.shape);
  read_values(*t.dtype, t.bytes.data() + row * bytes, t.shape.rank() == 0 ? 1 : t.shape.with(0, 1).numel(), out);
}

IndexRange all_rows(const StoredTensor& tensor) { return {0, rows_of(tensor.shape)}; }

std::optional<DType> block_type_of(std::span<const StoredRows> pieces) {
  const auto type_of = [](const StoredRows& p) { return is_quantised(p) ? p.tensor->quantised->block_type() : std::nullopt; };
  const auto type = type_of(pieces.front());
  return std::all_of(pieces.begin(), pieces.end(), [&](const StoredRows& p) { return type_of(p) == type; }) ? type : std::nullopt;
}

Tensor open_tensor(std::span<const StoredRows> pieces, const Shape& shape, const Shard& shard, Quantised quantised) {
  require(!pieces.empty(), "a tensor needs at least one piece");
  if (std::any_of(pieces.begin(), pieces.end(), is_quantised)) {
    const auto blocks = quantised == Quantised::InBlocks ? block_type_of(pieces) : std::nullopt;
    return open_quantised(pieces, shape, shard, blocks.value_or(DType::BF16));
  }
  const DType dtype = dtype_of(*pieces.front().tensor);
  const int64_t per_row = row_bytes(dtype, shape);
  check_pieces(pieces, dtype, shape, per_row);

  Shape kept = shape;
  std::vector<IndexRange> rows{{0, rows_of(shape)}}, inside;
  if (!shard.whole()) {
    const int axis = shape.axis_of(shard.axis);
    const auto ranges = shard.ranges(shape[axis]);
    kept[axis] = 0;
    for (const IndexRange& r : ranges) kept[axis] += r.size();
    if (axis == 0) rows = ranges;
    else inside = inner_ranges(dtype, shape, axis, shard);
  }

  std::vector<Run> runs;
  for (const IndexRange& r : rows) collect(runs, pieces, r, per_row, inside);
  // Two files may be mapped side by side; a view can keep only one of them alive.
  const auto& file = pieces.front().tensor->file;
  const bool one_file = std::all_of(pieces.begin(), pieces.end(), [&](const StoredRows& p) { return p.tensor->file == file; });
  if (one_file && runs.size() == 1 && is_aligned(runs[0].data(), dtype))
    return Tensor::on_host(runs[0].data(), dtype, kept, file);

  Tensor copy = Tensor::host_empty(dtype, kept);
  auto* to = copy.data<std::byte>();
  for (const Run& run : runs) {
    std::memcpy(to, run.data(), run.size());
    to += run.size();
  }
  return copy;
}

Tensor open_tensor(const StoredTensor& tensor, const Shard& shard) {
  const StoredRows all{&tensor, all_rows(tensor)};
  return open_tensor({&all, 1}, tensor.shape, shard);
}

}  // namespace flux2
