#include "model/adapter_change.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/text.h"
#include "weights/open_tensor.h"

namespace flux2 {

namespace {

constexpr float kEpsilon = std::numeric_limits<float>::epsilon();

[[noreturn]] void refuse(const AdapterModule& m, const char* a, const char* b) {
  fail(ErrorCode::BadFile, "{}: {} {} does not fit {} {}", printable(m.name), a, m.part(a)->shape, b, m.part(b)->shape);
}

// A whole factor, or the product of its two parts.
HostMatrix factor(const AdapterModule& m, const std::string& role) {
  if (m.part(role)) return matrix_of(*m.part(role));
  const std::string a = role + "_a", b = role + "_b";
  const HostMatrix left = matrix_of(*m.part(a)), right = matrix_of(*m.part(b));
  if (left.columns != right.rows) refuse(m, a.c_str(), b.c_str());
  ThreadPool alone(1);
  return product(left, right, alone);
}

// sum += row i of a · b
void add_product_row(const HostMatrix& a, int64_t i, const HostMatrix& b, float* sum) {
  for (int64_t k = 0; k < a.columns; ++k) {
    const float f = a.row(i)[k];
    if (f == 0.0f) continue;  // blocks of zeros are common in fused pieces
    const float* from = b.row(k);
    for (int64_t j = 0; j < b.columns; ++j) sum[j] += f * from[j];
  }
}

void scale_by(HostMatrix& x, double factor) {
  const auto f = static_cast<float>(factor);
  for (float& v : x.values) v *= f;
}

// Rᵀ for R = (I + Q)(I − Q)⁻¹, by elimination with pivots from (I − Q)ᵀ Rᵀ = (I + Q)ᵀ, which for Q = −Qᵀ is (I + Q) Rᵀ = I − Q.
HostMatrix cayley_transposed(const HostMatrix& q) {
  const int64_t n = q.rows;
  std::vector<double> a(static_cast<size_t>(n * n)), b(a.size());
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const auto at = static_cast<size_t>(i * n + j);
      a[at] = (i == j) + static_cast<double>(q.values[at]);
      b[at] = (i == j) - static_cast<double>(q.values[at]);
    }
  for (int64_t k = 0; k < n; ++k) {
    int64_t pivot = k;
    for (int64_t i = k + 1; i < n; ++i)
      if (std::abs(a[static_cast<size_t>(i * n + k)]) > std::abs(a[static_cast<size_t>(pivot * n + k)])) pivot = i;
    for (auto* m : {&a, &b})
      if (pivot != k) std::swap_ranges(m->begin() + k * n, m->begin() + (k + 1) * n, m->begin() + pivot * n);
    for (int64_t i = 0; i < n; ++i) {
      if (i == k) continue;
      const double f = a[static_cast<size_t>(i * n + k)] / a[static_cast<size_t>(k * n + k)];
      for (int64_t j = 0; j < n; ++j) {
        a[static_cast<size_t>(i * n + j)] -= f * a[static_cast<size_t>(k * n + j)];
        b[static_cast<size_t>(i * n + j)] -= f * b[static_cast<size_t>(k * n + j)];
      }
    }
  }
  HostMatrix r(n, n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j)
      r.row(i)[j] = static_cast<float>(b[static_cast<size_t>(i * n + j)] / a[static_cast<size_t>(i * n + i)]);
  return r;
}

}  // namespace

HostMatrix matrix_of(const StoredTensor& stored) {
  const Shape& s = stored.shape;
  if (s.numel() == 0) fail(ErrorCode::BadFile, "{} of shape {} is empty", printable(stored.name), s);
  if (!stored.quantised) dtype_of(stored);  // refuses unknown types: nothing has compared their shape with the file's size
  HostMatrix m(s.rank() == 0 ? 1 : s[0], s.rank() == 0 ? 1 : s.with(0, 1).numel());
  for (int64_t i = 0; i < m.rows; ++i) read_row(stored, i, m.row(i));
  if (!std::all_of(m.values.begin(), m.values.end(), [](float v) { return std::isfinite(v); }))
    fail(ErrorCode::BadFile, "{} contains values that are not numbers", printable(stored.name));
  return m;
}

HostMatrix product(const HostMatrix& a, const HostMatrix& b, ThreadPool& threads) {
  HostMatrix c(a.rows, b.columns);
  threads.parallel_ranges(a.rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) add_product_row(a, i, b, c.row(i));
  });
  return c;
}

AdapterChange::AdapterChange(const AdapterModule& m) : kind_(m.kind) {
  switch (kind_) {
    case AdapterKind::Lora: read_lora(m); break;
    case AdapterKind::LoHa: read_loha(m); break;
    case AdapterKind::LoKr: read_lokr(m); break;
    case AdapterKind::Oft: read_oft(m); break;
    case AdapterKind::Difference:
      a_ = matrix_of(*m.part("diff"));
      out_ = a_.rows, in_ = a_.columns;
      break;
    case AdapterKind::Glora:
    case AdapterKind::Ia3: fail(ErrorCode::Internal, "{}: {} adapters are not loaded", printable(m.name), name_of(kind_));
  }
  if (m.part("magnitude")) read_magnitude(m);
}

void AdapterChange::read_lora(const AdapterModule& m) {
  a_ = matrix_of(*m.part("down"));
  b_ = matrix_of(*m.part("up"));
  if (b_.columns != a_.rows) refuse(m, "up", "down");
  scale_by(b_, m.scale());
  out_ = b_.rows, in_ = a_.columns;
}

void AdapterChange::read_loha(const AdapterModule& m) {
  a_ = matrix_of(*m.part("w1_b")), b_ = matrix_of(*m.part("w1_a"));
  c_ = matrix_of(*m.part("w2_b")), d_ = matrix_of(*m.part("w2_a"));
  if (b_.columns != a_.rows) refuse(m, "w1_a", "w1_b");
  if (d_.columns != c_.rows) refuse(m, "w2_a", "w2_b");
  if (b_.rows != d_.rows || a_.columns != c_.columns) refuse(m, "w1_a", "w2_a");
  scale_by(b_, m.scale());
  out_ = b_.rows, in_ = a_.columns;
}

void AdapterChange::read_lokr(const AdapterModule& m) {
  a_ = factor(m, "w1"), b_ = factor(m, "w2");
  scale_by(a_, m.scale());
  out_ = a_.rows * b_.rows, in_ = a_.columns * b_.columns;
}

// [1, in] means columns, everything else means rows; for a square matrix the position of the axis decides.
void AdapterChange::read_magnitude(const AdapterModule& m) {
  const StoredTensor& magnitude = *m.part("magnitude");
  by_columns_ = magnitude.shape.rank() == 2 && magnitude.shape[0] == 1 && magnitude.shape[1] == in_ && out_ != 1;
  magnitude_ = matrix_of(magnitude).values;
  if (static_cast<int64_t>(magnitude_.size()) != (by_columns_ ? in_ : out_))
    fail(ErrorCode::BadFile, "{} of shape {} does not fit a layer [{}, {}]", printable(magnitude.name), magnitude.shape, out_,
         in_);
}

// Q = B − Bᵀ, kept within alpha; rows of a block are turned by Rᵀ with R = (I + Q)(I − Q)⁻¹.
void AdapterChange::read_oft(const AdapterModule& m) {
  const Shape shape = m.part("blocks")->shape;
  const int64_t count = shape[0], n = shape[1];
  if (shape[2] != n) fail(ErrorCode::BadFile, "{}: blocks {} are not square", printable(m.name), shape);
  const HostMatrix all = matrix_of(*m.part("blocks"));
  double norm = 0;
  std::vector<HostMatrix> skew(static_cast<size_t>(count), HostMatrix(n, n));
  for (int64_t k = 0; k < count; ++k)
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const float v = all.row(k)[i * n + j] - all.row(k)[j * n + i];
        skew[static_cast<size_t>(k)].row(i)[j] = v;
        norm += static_cast<double>(v) * v;
      }
  norm = std::sqrt(norm);
  const double limit = m.alpha.value_or(0.0);
  for (HostMatrix& q : skew) {
    if (limit > 0 && norm > limit) scale_by(q, limit / norm);
    rotations_.push_back(cayley_transposed(q));
  }
  if (const StoredTensor* rescale = m.part("rescale")) rescale_ = matrix_of(*rescale).values;
  out_ = count * n;
  if (!rescale_.empty() && static_cast<int64_t>(rescale_.size()) != out_)
    fail(ErrorCode::BadFile, "{}: {} factors for {} rows", printable(m.name), rescale_.size(), out_);
}

// Each row of a block is a combination of the rows of that block.
void AdapterChange::add_rotated(int64_t begin, int64_t end, const ReadRow& weight, int64_t columns, float strength,
                                float* sums) const {
  const int64_t n = rotations_[0].rows;
  HostMatrix block(n, columns);
  std::vector<float> turned(static_cast<size_t>(columns));
  for (int64_t i = begin; i < end; ++i) {
    if (i == begin || i % n == 0)
      for (int64_t k = 0; k < n; ++k) weight(i / n * n + k, block.row(k));
    std::fill(turned.begin(), turned.end(), 0.0f);
    add_product_row(rotations_[static_cast<size_t>(i / n)], i % n, block, turned.data());
    const float rescale = rescale_.empty() ? 1.0f : rescale_[static_cast<size_t>(i)];
    float* sum = sums + (i - begin) * columns;
    for (int64_t j = 0; j < columns; ++j) sum[j] += strength * (rescale * turned[static_cast<size_t>(j)] - block.row(i % n)[j]);
  }
}

void AdapterChange::delta_row(int64_t row, float* out) const {
  std::fill_n(out, in_, 0.0f);
  switch (kind_) {
    case AdapterKind::Lora: return add_product_row(b_, row, a_, out);
    case AdapterKind::LoHa: {
      add_product_row(b_, row, a_, out);
      std::vector<float> second(static_cast<size_t>(in_));
      add_product_row(d_, row, c_, second.data());
      for (int64_t j = 0; j < in_; ++j) out[j] *= second[static_cast<size_t>(j)];
      return;
    }
    case AdapterKind::LoKr:
      for (int64_t k = 0; k < a_.columns; ++k)
        for (int64_t j = 0; j < b_.columns; ++j) out[k * b_.columns + j] = a_.row(row / b_.rows)[k] * b_.row(row % b_.rows)[j];
      return;
    case AdapterKind::Difference: std::copy_n(a_.row(row), in_, out); return;
    case AdapterKind::Oft:
    case AdapterKind::Glora:
    case AdapterKind::Ia3: return;
  }
}

void AdapterChange::look_at(const ReadRow& weight) {
  if (magnitude_.empty() || !by_columns_) return;
  std::vector<double> squares(static_cast<size_t>(in_));
  std::vector<float> delta(squares.size()), w(squares.size());
  for (int64_t i = 0; i < out_; ++i) {
    delta_row(i, delta.data());
    weight(i, w.data());
    for (size_t j = 0; j < squares.size(); ++j) squares[j] += std::pow(static_cast<double>(w[j]) + delta[j], 2);
  }
  column_factors_.clear();
  for (size_t j = 0; j < squares.size(); ++j)
    column_factors_.push_back(magnitude_[j] / (static_cast<float>(std::sqrt(squares[j])) + kEpsilon));
}

// With magnitudes m (DoRA) W' = V · m / ‖V‖ for V = W + ΔW, norms over the inputs of each row or over the outputs of each column.
void AdapterChange::add_rows(int64_t begin, int64_t end, const ReadRow& weight, int64_t columns, float strength,
                             float* sums) const {
  if (kind_ == AdapterKind::Oft) return add_rotated(begin, end, weight, columns, strength, sums);
  std::vector<float> delta(static_cast<size_t>(in_)), w(magnitude_.empty() ? 0 : delta.size());
  for (int64_t i = begin; i < end; ++i) {
    float* sum = sums + (i - begin) * columns;
    delta_row(i, delta.data());
    if (magnitude_.empty()) {
      for (int64_t j = 0; j < in_; ++j) sum[j] += strength * delta[static_cast<size_t>(j)];
      continue;
    }
    weight(i, w.data());
    double square = 0;
    for (size_t j = 0; j < delta.size(); ++j) {
      delta[j] += w[j];
      square += static_cast<double>(delta[j]) * delta[j];
    }
    const float of_row =
        by_columns_ ? 0.0f : magnitude_[static_cast<size_t>(i)] / (static_cast<float>(std::sqrt(square)) + kEpsilon);
    for (size_t j = 0; j < delta.size(); ++j)
      sum[j] += strength * (delta[j] * (by_columns_ ? column_factors_[j] : of_row) - w[j]);
  }
}

}  // namespace flux2
