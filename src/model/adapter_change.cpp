#include "model/adapter_change.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/shown.h"
#include "weights/open_tensor.h"

namespace flux2 {

namespace {

constexpr float kEpsilon = std::numeric_limits<float>::epsilon();

[[noreturn]] void refuse(const AdapterModule& m, const char* a, const char* b) {
  fail(ErrorCode::BadFile, "{}: {} {} does not fit {} {}", shown(m.name), a, m.part(a)->shape, b, m.part(b)->shape);
}

// A whole factor, or the product of its two parts.
HostMatrix factor(const AdapterModule& m, const std::string& role, ThreadPool& threads) {
  if (m.part(role)) return matrix_of(*m.part(role));
  const std::string a = role + "_a", b = role + "_b";
  const HostMatrix left = matrix_of(*m.part(a)), right = matrix_of(*m.part(b));
  if (left.columns != right.rows) refuse(m, a.c_str(), b.c_str());
  return product(left, right, threads);
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
  if (s.numel() == 0) fail(ErrorCode::BadFile, "{} of shape {} is empty", shown(stored.name), s);
  HostMatrix m(s.rank() == 0 ? 1 : s[0], s.rank() == 0 ? 1 : s.with(0, 1).numel());
  for (int64_t i = 0; i < m.rows; ++i) read_row(stored, i, m.row(i));
  if (!std::all_of(m.values.begin(), m.values.end(), [](float v) { return std::isfinite(v); }))
    fail(ErrorCode::BadFile, "{} holds something other than numbers", shown(stored.name));
  return m;
}

HostMatrix product(const HostMatrix& a, const HostMatrix& b, ThreadPool& threads) {
  HostMatrix c(a.rows, b.columns);
  threads.parallel_ranges(a.rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t k = 0; k < a.columns; ++k) {
        const float f = a.row(i)[k];
        if (f == 0.0f) continue;  // blocks of zeros are common in fused pieces
        const float* from = b.row(k);
        float* to = c.row(i);
        for (int64_t j = 0; j < b.columns; ++j) to[j] += f * from[j];
      }
  });
  return c;
}

AdapterChange::AdapterChange(const AdapterModule& m, ThreadPool& threads) {
  switch (m.kind) {
    case AdapterKind::Lora: read_lora(m); break;
    case AdapterKind::LoHa: read_loha(m, threads); break;
    case AdapterKind::LoKr: read_lokr(m, threads); break;
    case AdapterKind::Oft: read_oft(m); break;
    case AdapterKind::Difference: dense_ = matrix_of(*m.part("diff")); break;
  }
  if (!dense_.values.empty()) out_ = dense_.rows, in_ = dense_.columns;
  if (const StoredTensor* magnitude = m.part("magnitude")) {
    // [1, in] speaks of columns, everything else of rows; of a square matrix the two axes decide.
    by_columns_ = magnitude->shape.rank() == 2 && magnitude->shape[0] == 1 && magnitude->shape[1] == in_ && out_ != 1;
    magnitude_ = matrix_of(*magnitude).values;
    if (static_cast<int64_t>(magnitude_.size()) != (by_columns_ ? in_ : out_))
      fail(ErrorCode::BadFile, "{} of shape {} does not fit a layer [{}, {}]", shown(magnitude->name), magnitude->shape, out_,
           in_);
  }
}

void AdapterChange::read_lora(const AdapterModule& m) {
  down_ = matrix_of(*m.part("down"));
  up_ = matrix_of(*m.part("up"));
  if (up_.columns != down_.rows) refuse(m, "up", "down");
  scale_by(up_, m.scale());
  low_rank_ = true;
  out_ = up_.rows, in_ = down_.columns;
}

void AdapterChange::read_loha(const AdapterModule& m, ThreadPool& threads) {
  dense_ = factor(m, "w1", threads);
  const HostMatrix second = factor(m, "w2", threads);
  if (second.rows != dense_.rows || second.columns != dense_.columns) refuse(m, "w1_a", "w2_a");
  for (size_t i = 0; i < dense_.values.size(); ++i) dense_.values[i] *= second.values[i];
  scale_by(dense_, m.scale());
}

void AdapterChange::read_lokr(const AdapterModule& m, ThreadPool& threads) {
  const HostMatrix a = factor(m, "w1", threads), b = factor(m, "w2", threads);
  dense_ = HostMatrix(a.rows * b.rows, a.columns * b.columns);
  const auto c = static_cast<float>(m.scale());
  for (int64_t i = 0; i < dense_.rows; ++i)
    for (int64_t j = 0; j < dense_.columns; ++j)
      dense_.row(i)[j] = c * a.row(i / b.rows)[j / b.columns] * b.row(i % b.rows)[j % b.columns];
}

// Q = B − Bᵀ, kept within alpha; rows of a block are turned by Rᵀ with R = (I + Q)(I − Q)⁻¹.
void AdapterChange::read_oft(const AdapterModule& m) {
  const Shape shape = m.part("blocks")->shape;
  const int64_t count = shape[0], n = shape[1];
  if (shape[2] != n) fail(ErrorCode::BadFile, "{}: blocks {} are not square", shown(m.name), shape);
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
  check(rescale_.empty() || static_cast<int64_t>(rescale_.size()) == out_, "{}: {} factors for {} rows", shown(m.name),
        rescale_.size(), out_);
}

void AdapterChange::add_oft(HostMatrix& sum, const HostMatrix& w, float strength) const {
  const int64_t n = rotations_[0].rows;
  std::vector<float> turned(static_cast<size_t>(w.columns));
  for (int64_t i = 0; i < w.rows; ++i) {
    const HostMatrix& r = rotations_[static_cast<size_t>(i / n)];
    std::fill(turned.begin(), turned.end(), 0.0f);
    for (int64_t k = 0; k < n; ++k)
      for (int64_t j = 0; j < w.columns; ++j) turned[static_cast<size_t>(j)] += r.row(i % n)[k] * w.row(i / n * n + k)[j];
    const float rescale = rescale_.empty() ? 1.0f : rescale_[static_cast<size_t>(i)];
    for (int64_t j = 0; j < w.columns; ++j) sum.row(i)[j] += strength * (rescale * turned[static_cast<size_t>(j)] - w.row(i)[j]);
  }
}

// W' = V · m / ‖V‖ for V = W + ΔW, norms over the inputs of each row or over the outputs of each column.
void AdapterChange::add_dora(HostMatrix& sum, const HostMatrix& w, const HostMatrix& delta, float strength) const {
  std::vector<double> norms(magnitude_.size());
  for (int64_t i = 0; i < w.rows; ++i)
    for (int64_t j = 0; j < w.columns; ++j) {
      const double v = static_cast<double>(w.row(i)[j]) + delta.row(i)[j];
      norms[static_cast<size_t>(by_columns_ ? j : i)] += v * v;
    }
  std::vector<float> factors(norms.size());
  for (size_t i = 0; i < norms.size(); ++i) factors[i] = magnitude_[i] / (static_cast<float>(std::sqrt(norms[i])) + kEpsilon);
  for (int64_t i = 0; i < w.rows; ++i)
    for (int64_t j = 0; j < w.columns; ++j) {
      const float v = w.row(i)[j] + delta.row(i)[j];
      sum.row(i)[j] += strength * (v * factors[static_cast<size_t>(by_columns_ ? j : i)] - w.row(i)[j]);
    }
}

void AdapterChange::add_to(HostMatrix& sum, const HostMatrix& weight, double strength, ThreadPool& threads) const {
  const auto s = static_cast<float>(strength);
  if (!rotations_.empty()) return add_oft(sum, weight, s);
  const HostMatrix computed = low_rank_ ? product(up_, down_, threads) : HostMatrix();
  const HostMatrix& delta = low_rank_ ? computed : dense_;
  if (!magnitude_.empty()) return add_dora(sum, weight, delta, s);
  for (size_t i = 0; i < delta.values.size(); ++i) sum.values[i] += s * delta.values[i];
}

}  // namespace flux2
