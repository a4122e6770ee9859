#include "train/adapters/rounded_parameters.h"

#include <gtest/gtest.h>

#include "autograd/grad.h"
#include "backend/cpu/cpu_device.h"

namespace flux2 {

namespace {

TEST(RoundedParameters, CopiesFollowTheValues) {
  const auto stream = open_cpu()->open_stream();
  const std::vector<float> numbers = {1.001f, -2, 3, 0.5f, 7.03f, -1};
  Tensor a = parameter(Tensor::from(*stream, DType::F32, {2, 3}, std::span<const float>(numbers)));
  Tensor b = parameter(Tensor::from(*stream, DType::F32, {5}, std::span(numbers).first(5)));
  const Tensor before = a.detached();
  const RoundedParameters rounded({&a, &b}, DType::BF16);
  EXPECT_EQ(a.to_floats(), numbers);
  EXPECT_NE(a.raw(), before.raw());
  EXPECT_TRUE(wants_grad(a));
  EXPECT_TRUE(wants_grad(b));
  EXPECT_EQ(rounded[0].shape(), a.shape());
  EXPECT_EQ(rounded[0].to_floats(), a.detached().cast(DType::BF16).to_floats());
  EXPECT_EQ(rounded[1].to_floats(), b.detached().cast(DType::BF16).to_floats());
  b.detached().fill(0.123);
  EXPECT_NE(rounded[1].to_floats(), b.detached().cast(DType::BF16).to_floats());
  rounded.refresh();
  EXPECT_EQ(rounded[1].to_floats(), b.detached().cast(DType::BF16).to_floats());
  EXPECT_EQ(rounded[0].to_floats(), a.detached().cast(DType::BF16).to_floats());
}

TEST(RoundedParameters, NothingToRound) { RoundedParameters({}, DType::BF16).refresh(); }

}  // namespace

}  // namespace flux2
