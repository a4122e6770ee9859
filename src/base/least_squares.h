#pragma once

#include <span>
#include <vector>

namespace flux2 {

// Weighted linear least squares in double precision. Rows are added one by one and only sums are kept. Several right-hand sides
// share the rows.
class LeastSquares {
 public:
  explicit LeastSquares(int unknowns, int sides = 1);

  // A row that is zero except at `columns`; `targets` has one value per right-hand side.
  void add(std::span<const int> columns, std::span<const double> values, std::span<const double> targets, double weight = 1);
  // A prior that counts as `weight` observations: the unknown is near `value` for every right-hand side.
  void expect(int unknown, double value, double weight);

  // [sides][unknowns]. Unknowns that no row determines are 0.
  std::vector<std::vector<double>> solve() const;

 private:
  double& normal(int row, int column) {
    return normal_[static_cast<size_t>(row) * static_cast<size_t>(unknowns_) + static_cast<size_t>(column)];
  }

  int unknowns_, sides_;
  std::vector<double> normal_;   // [unknowns][unknowns], the lower triangle
  std::vector<double> moments_;  // [sides][unknowns]
};

}  // namespace flux2
