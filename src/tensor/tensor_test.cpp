#include "tensor/tensor.h"

#include <gtest/gtest.h>

namespace flux2 {
namespace {

// Kernels that compare the strides of two tensors must not see a difference between a picture and "one picture, repeated
// once": it sent the text of an uncaptured step down another path than that of a captured one.
TEST(Tensor, BroadcastingToTheSameShapeChangesNothing) {
  const Tensor x = Tensor::host_empty(DType::F32, {1, 3, 4});
  EXPECT_EQ(x.expanded({1, 3, 4}).strides(), x.strides());
  const Tensor twice = x.expanded({2, 3, 4});
  EXPECT_EQ(twice.stride(0), 0);
  EXPECT_EQ(twice.stride(1), 4);
  EXPECT_EQ(x.expanded({5, 1, 3, 4}).stride(0), 0);
}

}  // namespace
}  // namespace flux2
