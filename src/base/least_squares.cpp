#include "base/least_squares.h"

#include <cmath>

#include "base/error.h"

namespace flux2 {

LeastSquares::LeastSquares(int unknowns, int sides)
    : unknowns_(unknowns),
      sides_(sides),
      normal_(static_cast<size_t>(unknowns) * static_cast<size_t>(unknowns)),
      moments_(static_cast<size_t>(unknowns) * static_cast<size_t>(sides)) {
  require(unknowns > 0 && sides > 0, "least squares with {} unknowns and {} sides", unknowns, sides);
}

void LeastSquares::add(std::span<const int> columns, std::span<const double> values, std::span<const double> targets,
                       double weight) {
  for (size_t i = 0; i < columns.size(); ++i) {
    const double scaled = weight * values[i];
    for (size_t j = 0; j < columns.size(); ++j)
      if (columns[j] <= columns[i]) normal(columns[i], columns[j]) += scaled * values[j];
    for (size_t s = 0; s < targets.size(); ++s)
      moments_[s * static_cast<size_t>(unknowns_) + static_cast<size_t>(columns[i])] += scaled * targets[s];
  }
}

void LeastSquares::expect(int unknown, double value, double weight) {
  const std::vector<double> targets(static_cast<size_t>(sides_), value);
  const double one = 1;
  add({&unknown, 1}, {&one, 1}, targets, weight);
}

std::vector<std::vector<double>> LeastSquares::solve() const {
  // L·D·Lᵀ in place; a pivot that is only rounding error belongs to an unknown that no row determines.
  constexpr double kLost = 1e-12;
  const auto n = static_cast<size_t>(unknowns_);
  std::vector<double> l = normal_;
  std::vector<bool> determined(n);
  for (size_t i = 0; i < n; ++i) {
    const double whole = l[i * n + i];
    for (size_t j = 0; j < i; ++j) {
      double sum = l[i * n + j];
      for (size_t k = 0; k < j; ++k)
        if (determined[k]) sum -= l[i * n + k] * l[j * n + k] * l[k * n + k];
      l[i * n + j] = determined[j] ? sum / l[j * n + j] : 0;
      if (determined[j]) l[i * n + i] -= l[i * n + j] * l[i * n + j] * l[j * n + j];
    }
    determined[i] = whole > 0 && l[i * n + i] > kLost * whole;
  }
  std::vector<std::vector<double>> solutions;
  for (size_t s = 0; s < static_cast<size_t>(sides_); ++s) {
    std::vector<double> x(moments_.begin() + static_cast<std::ptrdiff_t>(s * n),
                          moments_.begin() + static_cast<std::ptrdiff_t>((s + 1) * n));
    for (size_t i = 0; i < n; ++i)
      for (size_t k = 0; k < i; ++k)
        if (determined[k]) x[i] -= l[i * n + k] * x[k];
    for (size_t i = 0; i < n; ++i) x[i] = determined[i] ? x[i] / l[i * n + i] : 0;
    for (size_t i = n; i-- > 0;)
      for (size_t k = i + 1; k < n; ++k)
        if (determined[i]) x[i] -= l[k * n + i] * x[k];
    solutions.push_back(std::move(x));
  }
  return solutions;
}

}  // namespace flux2
