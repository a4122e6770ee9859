#include "pipeline/seamless.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>

#include "backend/cpu/cpu_device.h"

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
  EXPECT_TRUE(GridShift(3, 4, 0, 0).is_none());
}

TEST_F(Seamless, EveryStepHasAnotherEdge) {
  Request request{.width = 1024, .height = 512};
  EXPECT_TRUE(seamless_shift(request, 0).is_none());
  request.tile_x = true;
  std::set<std::vector<float>> seen;
  const Tensor x = numbered(request.rows(), request.columns());
  for (int step = 0; step < 20; ++step) {
    const std::vector<float> rolled = seamless_shift(request, step)(x).to_floats();
    EXPECT_LT(rolled[0], static_cast<float>(request.columns())) << "x alone shifts columns alone";
    EXPECT_NE(rolled[0], 0.0f);
    seen.insert(rolled);
  }
  EXPECT_EQ(seen.size(), 20u);
}

TEST_F(Seamless, TheMarginIsTheOppositeSideAndIsCutOffAgain) {
  Request request{.width = 96, .height = 80};  // 6 columns, 5 rows
  EXPECT_FALSE(WrappedGrid(request, numbered(5, 6)).is_wrapped());
  request.tile_x = true;
  const WrappedGrid grid(request, numbered(5, 6));
  ASSERT_EQ(grid.rows(), 5);
  ASSERT_EQ(grid.columns(), 14);
  const std::vector<float> values = grid.tokens().to_floats();
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
