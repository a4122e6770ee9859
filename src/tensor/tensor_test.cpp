#include "tensor/tensor.h"

#include <gtest/gtest.h>

#include "base/error.h"

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

// Layers above compare sizes that come from outside before they make tensors of them.
TEST(Tensor, WrongShapeIsAnInternalError) {
  const Tensor x = Tensor::host_empty(DType::F32, {2, 3});
  try {
    x.reshaped({4, 2});
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.code(), ErrorCode::Internal);
    EXPECT_STREQ(e.what(), "cannot reshape [2, 3] to [4, 2]");
  }
}

}  // namespace
}  // namespace flux2
