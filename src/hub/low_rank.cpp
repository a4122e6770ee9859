#include <algorithm>
#include <cmath>
#include <numeric>

#include "hub/adapter_tools.h"

namespace flux2 {

namespace {

constexpr int64_t kSurplus = 8;  // columns beyond the rank, which make the iteration converge faster
constexpr int kIterations = 4;

HostMatrix transposed(const HostMatrix& a) {
  HostMatrix t(a.columns, a.rows);
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) t.row(j)[i] = a.row(i)[j];
  return t;
}

double dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

// Makes the rows orthonormal, one after the other, in two passes, because rounding errors remain after one. Rows that depend on
// earlier rows become zero.
void orthonormalise_rows(HostMatrix& a) {
  for (int64_t i = 0; i < a.rows; ++i) {
    const double before = std::sqrt(dot(a.row(i), a.row(i), a.columns));
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t j = 0; j < i; ++j) {
        const auto f = static_cast<float>(dot(a.row(i), a.row(j), a.columns));
        for (int64_t k = 0; k < a.columns; ++k) a.row(i)[k] -= f * a.row(j)[k];
      }
    const double norm = std::sqrt(dot(a.row(i), a.row(i), a.columns));
    const auto f = static_cast<float>(norm > 1e-6 * before && norm > 0 ? 1 / norm : 0);
    for (int64_t k = 0; k < a.columns; ++k) a.row(i)[k] *= f;
  }
}

// Eigenvectors (rows) and values of a small symmetric matrix by Jacobi's rotations, largest first.
struct Eigen {
  std::vector<double> values;
  std::vector<std::vector<double>> vectors;
};

Eigen eigen_of(std::vector<std::vector<double>> a) {
  const size_t n = a.size();
  std::vector<std::vector<double>> v(n, std::vector<double>(n));
  for (size_t i = 0; i < n; ++i) v[i][i] = 1;
  for (int sweep = 0; sweep < 30; ++sweep) {
    double off = 0, all = 0;
    for (size_t i = 0; i < n; ++i)
      for (size_t j = 0; j < n; ++j) (i == j ? all : off) += a[i][j] * a[i][j];
    if (off <= 1e-26 * all) break;
    for (size_t p = 0; p < n; ++p)
      for (size_t q = p + 1; q < n; ++q) {
        if (a[p][q] == 0) continue;
        const double theta = (a[q][q] - a[p][p]) / (2 * a[p][q]);
        const double t = (theta >= 0 ? 1 : -1) / (std::abs(theta) + std::sqrt(theta * theta + 1)), c = 1 / std::sqrt(t * t + 1),
                     s = t * c;
        for (size_t k = 0; k < n; ++k) {
          const double x = a[k][p], y = a[k][q];
          a[k][p] = c * x - s * y, a[k][q] = s * x + c * y;
        }
        for (size_t k = 0; k < n; ++k) {
          const double x = a[p][k], y = a[q][k];
          a[p][k] = c * x - s * y, a[q][k] = s * x + c * y;
          const double vx = v[p][k], vy = v[q][k];
          v[p][k] = c * vx - s * vy, v[q][k] = s * vx + c * vy;
        }
      }
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t x, size_t y) { return a[x][x] > a[y][y]; });
  Eigen result;
  for (size_t i : order) result.values.push_back(a[i][i]), result.vectors.push_back(v[i]);
  return result;
}

}  // namespace

// Q spans the directions of the rows of A that matter most; the best pair inside it follows from the eigenvectors of
// (A Qᵀ)ᵀ (A Qᵀ), and the square root of each singular value goes to either side.
LowRankPair nearest_low_rank(const HostMatrix& a, int64_t rank, ThreadPool& threads) {
  const int64_t size = std::min({rank + kSurplus, a.rows, a.columns});
  rank = std::min(rank, size);
  HostMatrix q(size, a.columns);
  uint64_t state = 0x9e3779b97f4a7c15u;
  for (float& v : q.values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    v = static_cast<float>(static_cast<double>(state >> 40) * 0x1p-23 - 1);
  }
  const HostMatrix at = transposed(a);
  orthonormalise_rows(q);
  for (int i = 0; i < kIterations; ++i) {
    HostMatrix y = product(q, at, threads);  // [size, out]
    orthonormalise_rows(y);
    q = product(y, a, threads);
    orthonormalise_rows(q);
  }
  const HostMatrix y = product(q, at, threads);  // rows: A applied to the directions of Q
  std::vector<std::vector<double>> gram(static_cast<size_t>(size), std::vector<double>(static_cast<size_t>(size)));
  for (int64_t i = 0; i < size; ++i)
    for (int64_t j = 0; j <= i; ++j)
      gram[static_cast<size_t>(i)][static_cast<size_t>(j)] = gram[static_cast<size_t>(j)][static_cast<size_t>(i)] =
          dot(y.row(i), y.row(j), a.rows);
  const Eigen eigen = eigen_of(std::move(gram));
  LowRankPair pair{HostMatrix(rank, a.columns), HostMatrix(a.rows, rank)};
  for (int64_t r = 0; r < rank; ++r) {
    const double sigma = std::sqrt(std::max(0.0, eigen.values[static_cast<size_t>(r)]));
    if (sigma == 0) continue;
    const auto& e = eigen.vectors[static_cast<size_t>(r)];
    for (int64_t k = 0; k < size; ++k) {
      const auto down = static_cast<float>(e[static_cast<size_t>(k)] * std::sqrt(sigma)),
                 up = static_cast<float>(e[static_cast<size_t>(k)] / std::sqrt(sigma));
      for (int64_t j = 0; j < a.columns; ++j) pair.down.row(r)[j] += down * q.row(k)[j];
      for (int64_t i = 0; i < a.rows; ++i) pair.up.row(i)[r] += up * y.row(k)[i];
    }
  }
  return pair;
}

}  // namespace flux2
