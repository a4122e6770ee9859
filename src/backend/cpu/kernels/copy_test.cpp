#include <cstring>
#include <limits>

#include "backend/cpu/kernels/kernel_test.h"

namespace flux2::cpu {
namespace {

using CopyTest = KernelTest;
FLUX2_KERNEL_LEVELS(CopyTest);

constexpr DType kPlain[] = {DType::F32, DType::F64, DType::F16, DType::BF16, DType::I8,  DType::U8,      DType::I16,
                            DType::U16, DType::I32, DType::U32, DType::I64,  DType::U64, DType::F8_E4M3, DType::F8_E5M2};

// Small whole numbers are exact in every dtype, so any route between two dtypes must return them.
TEST_P(CopyTest, EveryPairOfDTypes) {
  std::vector<float> values(3000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 8);
  const Tensor x = Tensor::from<float>(*stream, DType::F32, {3000}, values);
  for (DType a : kPlain)
    for (DType b : kPlain)
      EXPECT_EQ(x.cast(a).cast(b).cast(DType::F32).to_floats(), values) << name_of(a) << " to " << name_of(b);
  for (DType a : kPlain) {
    const std::vector<float> truth = x.cast(a).cast(DType::Bool).to_floats();
    for (size_t i = 0; i < truth.size(); ++i) ASSERT_EQ(truth[i], i % 8 != 0) << name_of(a);
  }
}

TEST_P(CopyTest, LargeIntegersKeepTheirBits) {
  const int64_t big = std::numeric_limits<int64_t>::max() - 1;
  Tensor x = Tensor::empty(*stream, DType::I64, {1});
  stream->upload(x.raw(), &big, sizeof(big));
  int64_t back = 0;
  const Tensor y = x.cast(DType::U64);
  stream->download(&back, y.raw(), sizeof(back));
  EXPECT_EQ(back, big);
}

TEST_P(CopyTest, FloatsOutsideTheRangeAreClamped) {
  const std::vector<float> values = {300, -300, NAN, 1e30f, -1.9f, 1.9f};
  const Tensor x = Tensor::from<float>(*stream, DType::F32, {6}, values);
  EXPECT_EQ(x.cast(DType::I8).to_ints(), (std::vector<int32_t>{127, -128, 0, 127, -1, 1}));
  EXPECT_EQ(x.cast(DType::U8).to_ints(), (std::vector<int32_t>{255, 0, 0, 255, 0, 1}));
  EXPECT_EQ(x.cast(DType::F8_E4M3).to_floats()[3], 448.0f);
  EXPECT_TRUE(std::isnan(x.cast(DType::F8_E5M2).to_floats()[2]));
}

TEST_P(CopyTest, RoundTripsEveryFp8) {
  for (DType dtype : {DType::F8_E4M3, DType::F8_E5M2}) {
    Tensor x = Tensor::empty(*stream, dtype, {256});
    for (int i = 0; i < 256; ++i) x.data<uint8_t>()[i] = static_cast<uint8_t>(i);
    const Tensor back = x.cast(DType::F32).cast(dtype);
    const std::vector<float> wide = x.to_floats();
    for (size_t i = 0; i < 256; ++i) {
      if (!std::isfinite(wide[i])) continue;
      EXPECT_EQ(back.data<uint8_t>()[i], i) << name_of(dtype) << " " << wide[i];
    }
  }
  const Tensor ties = Tensor::from<float>(*stream, DType::F32, {3}, std::vector<float>{17.0f, 19.0f, 0x1p-10f});
  EXPECT_EQ(ties.cast(DType::F8_E4M3).to_floats(), (std::vector<float>{16.0f, 20.0f, 0.0f}));  // ties to even
}

TEST_P(CopyTest, PowerOfTwoScales) {
  Tensor x = Tensor::empty(*stream, DType::F8_E8M0, {3});
  const uint8_t bits[] = {127, 130, 120};
  stream->upload(x.raw(), bits, 3);
  EXPECT_EQ(x.cast(DType::F32).to_floats(), (std::vector<float>{1.0f, 8.0f, 0x1p-7f}));
  EXPECT_EQ(std::memcmp(x.cast(DType::F32).cast(DType::F8_E8M0).raw(), bits, 3), 0);
}

TEST_P(CopyTest, UnpacksBlocks) {
  Tensor q8 = Tensor::empty(*stream, DType::Q8_0, {2, 64}), q4 = Tensor::empty(*stream, DType::Q4_0, {2, 64});
  std::vector<double> expected8, expected4;
  for (int b = 0; b < 4; ++b) {
    BlockQ8_0& block = q8.data<BlockQ8_0>()[b];
    block.scale = to_f16(0.25f * static_cast<float>(b + 1));
    for (int i = 0; i < 32; ++i) {
      block.q[i] = static_cast<int8_t>(7 * i - 100);
      expected8.push_back(0.25 * (b + 1) * (7 * i - 100));
    }
    BlockQ4_0& packed = q4.data<BlockQ4_0>()[b];
    packed.scale = to_f16(0.5f);
    for (int i = 0; i < 16; ++i) packed.q[i] = static_cast<uint8_t>(((i + b) % 16) | ((15 - i) << 4));
    for (int i = 0; i < 16; ++i) expected4.push_back(0.5 * ((i + b) % 16 - 8));
    for (int i = 0; i < 16; ++i) expected4.push_back(0.5 * (15 - i - 8));
  }
  for (DType to : kFloats) {
    expect_close(q8.cast(to), expected8, to == DType::BF16 ? 4e-3 : 1e-3);
    expect_close(q4.cast(to), expected4, 0);
  }
  EXPECT_EQ(std::memcmp(q8.cloned().raw(), q8.raw(), 4 * sizeof(BlockQ8_0)), 0);
}

TEST_P(CopyTest, AnyStridesOnBothSides) {
  const Tensor x = random({5, 6, 70});
  const int axes[] = {2, 0, 1};
  const Tensor turned = x.permuted(axes);  // [70, 5, 6]
  const std::vector<float> source = x.to_floats();
  for (DType to : {DType::F32, DType::F64}) {
    Tensor wide = zeros({70, 5, 12}, to);
    const Tensor target = wide.narrowed(2, 3, 6);
    target.copy_from(turned);
    const std::vector<float> result = wide.to_floats();
    for (size_t i = 0; i < 70; ++i)
      for (size_t j = 0; j < 5; ++j)
        for (size_t k = 0; k < 12; ++k)
          ASSERT_EQ(result[(i * 5 + j) * 12 + k], k >= 3 && k < 9 ? source[(j * 6 + k - 3) * 70 + i] : 0.0f);
  }
  const Tensor broadcast = x.narrowed(2, 0, 1).expanded({5, 6, 9}).contiguous();
  EXPECT_EQ(broadcast.to_floats()[9 * 7 + 4], source[7 * 70]);
}

TEST_P(CopyTest, LargeTransposeOfEveryWidth) {
  for (DType dtype : {DType::U8, DType::BF16, DType::F32, DType::F64}) {
    const Tensor x = random({131, 77}).cast(dtype);
    const int axes[] = {1, 0};
    const std::vector<double> source = x.to_doubles(), turned = x.permuted(axes).contiguous().to_doubles();
    for (size_t i = 0; i < 131; ++i)
      for (size_t j = 0; j < 77; ++j) ASSERT_EQ(turned[j * 131 + i], source[i * 77 + j]) << name_of(dtype);
  }
}

TEST_P(CopyTest, FillsViewsOfAnyDType) {
  for (DType dtype : kPlain) {
    const Tensor t = zeros({3, 2050}, dtype);
    t.narrowed(1, 1, 2048).fill(3.0);
    const std::vector<float> values = t.to_floats();
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], i % 2050 >= 1 && i % 2050 < 2049 ? 3.0f : 0.0f);
  }
}

}  // namespace
}  // namespace flux2::cpu
