#include "tensor/shape.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace flux2 {
namespace {

TEST(Shape, CountsAndStrides) {
  const Shape s{2, 3, 4};
  EXPECT_EQ(s.numel(), 24);
  EXPECT_EQ(s.strides(), (Shape{12, 4, 1}));
  EXPECT_EQ(s[-1], 4);
  EXPECT_EQ(s.str(), "[2, 3, 4]");
  EXPECT_EQ(Shape{}.numel(), 1);
  EXPECT_THROW(s[3], Error);
}

TEST(Shape, Broadcast) {
  EXPECT_EQ(broadcast_shape({2, 1, 4}, {3, 1}), (Shape{2, 3, 4}));
  EXPECT_EQ(broadcast_shape({}, {3}), (Shape{3}));
  EXPECT_THROW(broadcast_shape({2}, {3}), Error);
}

}  // namespace
}  // namespace flux2
