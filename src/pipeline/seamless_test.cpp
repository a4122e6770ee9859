#include "pipeline/seamless.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <tuple>

#include "backend/cpu/cpu_device.h"
#include "ops/arithmetic.h"

namespace flux2 {
namespace {

class Seamless : public testing::Test {
 protected:
  // Tokens [1, rows · columns, 1] whose values number the positions.
  Tensor numbered(int64_t rows, int64_t columns) {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    std::iota(values.begin(), values.end(), 0.0f);
    return Tensor::from<float>(*stream_, DType::F32, {1, rows * columns, 1}, values);
  }
  std::shared_ptr<Stream> stream_ = open_cpu()->open_stream();
};

TEST_F(Seamless, AShiftRollsAndIsUndone) {
  const Tensor x = numbered(3, 4);
  const GridShift shift(3, 4, 1, 2);
  EXPECT_EQ(shift(x).to_floats(), (std::vector<float>{10, 11, 8, 9, 2, 3, 0, 1, 6, 7, 4, 5}));
  EXPECT_EQ(shift.undo(shift(x)).to_floats(), x.to_floats());
}

TEST_F(Seamless, VelocitiesThatDoNotDependOnThePlaceStayAsTheyAre) {
  for (const auto& [x, y, passes] : {std::tuple{false, false, 1}, {true, false, 2}, {false, true, 2}, {true, true, 4}}) {
    Request request{.width = 112, .height = 80};  // 7 columns, 5 rows
    request.tile_x = x, request.tile_y = y;
    int calls = 0;
    const Tensor state = numbered(5, 7);
    const Tensor v = SeamlessVelocity(*stream_, request)(state, [&](const Tensor& seen) {
      ++calls;
      return 2.0 * seen;
    });
    EXPECT_EQ(calls, passes);
    const auto got = v.to_floats(), expected = (2.0 * state).to_floats();
    for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-4) << i;
  }
}

// A transformer that draws something else at its left edge: one pass has a jump of 1 there, the blend a small one everywhere.
TEST_F(Seamless, AnEdgeIsSpreadOverTheImage) {
  Request request{.width = 256, .height = 16};
  request.tile_x = true;
  const auto ramp = [&](const Tensor&) {
    std::vector<float> values(16);
    for (size_t i = 0; i < 16; ++i) values[i] = static_cast<float>(i) / 15;
    return Tensor::from<float>(*stream_, DType::F32, {1, 16, 1}, values);
  };
  const std::vector<float> v = SeamlessVelocity(*stream_, request)(numbered(1, 16), ramp).to_floats();
  for (size_t i = 0; i < 16; ++i) EXPECT_LT(std::abs(v[i] - v[(i + 1) % 16]), 0.15) << i;
}

TEST_F(Seamless, TheDecoderSeesTheOppositeSide) {
  Request request{.width = 96, .height = 80};  // 6 columns, 5 rows
  EXPECT_FALSE(WrappedGrid(request).is_wrapped());
  request.tile_x = true;
  const WrappedGrid grid(request);
  ASSERT_EQ(grid.rows(), 5);
  ASSERT_EQ(grid.columns(), 14);
  const std::vector<float> values = grid.wrapped(numbered(5, 6)).to_floats();
  EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + 14),
            (std::vector<float>{2, 3, 4, 5, 0, 1, 2, 3, 4, 5, 0, 1, 2, 3}));
  Planes decoded{.width = 14 * 16, .height = 80, .values = {}};
  decoded.values.resize(size_t{3} * 14 * 16 * 80);
  for (size_t i = 0; i < decoded.values.size(); ++i) decoded.values[i] = static_cast<float>(i % (14 * 16));  // the column
  const Planes middle = grid.middle(decoded);
  ASSERT_EQ(middle.width, 96);
  ASSERT_EQ(middle.height, 80);
  ASSERT_EQ(middle.values.size(), size_t{3} * 96 * 80);
  EXPECT_EQ(middle.values.front(), 64.0f);
  EXPECT_EQ(middle.values.back(), 64.0f + 95);
}

}  // namespace
}  // namespace flux2
