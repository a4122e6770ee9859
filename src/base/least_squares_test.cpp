#include "base/least_squares.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

namespace flux2 {
namespace {

TEST(LeastSquares, RecoversTheCoefficients) {
  const std::array<std::array<double, 4>, 2> truth = {{{1.5, -2, 0.25, 7}, {0, 3, -1, 0.5}}};
  LeastSquares fit(4, 2);
  std::mt19937 random(7);
  std::normal_distribution<double> normal;
  for (int i = 0; i < 400; ++i) {
    const std::array<double, 4> row = {normal(random), normal(random), normal(random), 1};
    std::array<double, 2> targets{};
    for (size_t s = 0; s < 2; ++s)
      for (size_t k = 0; k < 4; ++k) targets[s] += truth[s][k] * row[k];
    const std::array<int, 4> columns = {3, 0, 2, 1};  // in any order
    const std::array<double, 4> values = {row[3], row[0], row[2], row[1]};
    fit.add(columns, values, targets, 0.5 + (i % 3));
  }
  const auto found = fit.solve();
  for (size_t s = 0; s < 2; ++s)
    for (size_t k = 0; k < 4; ++k) EXPECT_NEAR(found[s][k], truth[s][k], 1e-10);
}

TEST(LeastSquares, WeighsItsRows) {
  LeastSquares fit(1);
  const int column = 0;
  const double one = 1, low = 2, high = 5;
  fit.add({&column, 1}, {&one, 1}, {&low, 1}, 1);
  fit.add({&column, 1}, {&one, 1}, {&high, 1}, 2);
  EXPECT_NEAR(fit.solve()[0][0], 4, 1e-12);
  fit.expect(0, 8, 3);
  EXPECT_NEAR(fit.solve()[0][0], 6, 1e-12);
}

TEST(LeastSquares, LeavesUndeterminedUnknownsAtZero) {
  LeastSquares fit(3);
  for (int i = 0; i < 10; ++i) {
    const std::array<int, 2> columns = {0, 1};
    const std::array<double, 2> values = {1.0 * i, 2.0 * i};  // the second is twice the first
    const double target = 3.0 * i;
    fit.add(columns, values, {&target, 1});
  }
  const auto x = fit.solve()[0];
  EXPECT_NEAR(x[0] + 2 * x[1], 3, 1e-9);
  EXPECT_EQ(x[2], 0);
}

}  // namespace
}  // namespace flux2
