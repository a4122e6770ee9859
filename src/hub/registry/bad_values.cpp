#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "hub/registry/check_record.h"
#include "weights/packed_values.h"
#include "weights/read_values.h"
#include "weights/weight_source.h"

namespace flux2 {

namespace {

constexpr int64_t kPiece = 1 << 18;  // elements at a time, a multiple of every block
constexpr size_t kNamed = 10;

// The index of the first value that is no number, or −1.
int64_t first_bad(const StoredTensor& t) {
  std::vector<float> values;
  const auto look = [&](int64_t begin, int64_t count) -> int64_t {
    for (int64_t i = 0; i < count; ++i)
      if (!std::isfinite(values[static_cast<size_t>(i)])) return begin + i;
    return -1;
  };
  if (t.packed) {
    const int64_t rows = t.shape[0], columns = t.shape[1];
    const int64_t step = std::max<int64_t>(1, kPiece / std::max<int64_t>(1, columns));
    for (int64_t row = 0; row < rows; row += step) {
      const int64_t end = std::min(rows, row + step);
      values.resize(static_cast<size_t>((end - row) * columns));
      t.packed->rows(row, end, values.data());
      if (const int64_t bad = look(row * columns, (end - row) * columns); bad >= 0) return bad;
    }
    return -1;
  }
  if (!t.dtype || !is_readable(*t.dtype)) return -1;
  values.resize(kPiece);
  for (int64_t at = 0; at < t.shape.numel(); at += kPiece) {
    const int64_t count = std::min(kPiece, t.shape.numel() - at);
    read_values(*t.dtype, t.bytes.data() + bytes_for(*t.dtype, at), count, values.data());
    if (const int64_t bad = look(at, count); bad >= 0) return bad;
  }
  return -1;
}

}  // namespace

std::vector<std::string> find_bad_values(const std::filesystem::path& path, const CopyProgress& progress, const Log& log) {
  const auto source = open_weights(path, log);
  std::vector<std::string> found;
  uint64_t done = 0;
  const uint64_t total = source->total_bytes();
  for (const StoredTensor& t : source->tensors()) {
    if (progress && !progress(done, total, t.name)) throw Error(ErrorCode::Cancelled, "stopped");
    if (const int64_t bad = first_bad(t); bad >= 0) found.push_back(fmt::format("{} at {}", t.name, bad));
    if (found.size() >= kNamed) break;
    done += t.bytes.size();
    if (t.file) t.file->drop(static_cast<size_t>(t.bytes.data() - t.file->bytes().data()), t.bytes.size());
  }
  return found;
}

}  // namespace flux2
