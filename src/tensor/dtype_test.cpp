#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"

namespace flux2 {
namespace {

TEST(DType, RoundTripsEveryF16) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const f16 h{static_cast<uint16_t>(bits)};
    const float v = to_float(h);
    if (std::isnan(v)) EXPECT_TRUE(std::isnan(to_float(to_f16(v))));
    else EXPECT_EQ(to_f16(v).bits, h.bits);
  }
}

TEST(DType, F16RoundsToNearestEven) {
  EXPECT_EQ(to_float(to_f16(2049.0f)), 2048.0f);
  EXPECT_EQ(to_float(to_f16(2051.0f)), 2052.0f);
  EXPECT_TRUE(std::isinf(to_float(to_f16(65520.0f))));
  EXPECT_EQ(to_float(to_f16(65519.0f)), 65504.0f);
  EXPECT_EQ(to_float(to_f16(0x1p-25f)), 0.0f);  // tie to even
  EXPECT_EQ(to_float(to_f16(0x1.8p-25f)), 0x1p-24f);
}

TEST(DType, Bf16RoundsToNearestEven) {
  EXPECT_EQ(to_float(to_bf16(1.0f)), 1.0f);
  EXPECT_EQ(to_float(to_bf16(1.00390625f)), 1.0f);       // half way, even below
  EXPECT_EQ(to_float(to_bf16(1.01171875f)), 1.015625f);  // half way, even above
  EXPECT_TRUE(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_TRUE(std::isinf(to_float(to_bf16(std::numeric_limits<float>::max()))));
}

TEST(DType, Fp8Values) {
  EXPECT_EQ(e4m3_to_float(0x7e), 448.0f);
  EXPECT_TRUE(std::isnan(e4m3_to_float(0x7f)));
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9f);
  EXPECT_EQ(e4m3_to_float(0xb8), -1.0f);
  EXPECT_EQ(e5m2_to_float(0x7b), 57344.0f);
}

TEST(DType, BytesOfBlocks) {
  EXPECT_EQ(bytes_for(DType::Q8_0, 64), 68);
  EXPECT_EQ(bytes_for(DType::BF16, 3), 6);
  EXPECT_THROW(bytes_for(DType::Q4_0, 33), Error);
  EXPECT_EQ(dtype_named("BF16"), DType::BF16);
  EXPECT_EQ(dtype_named("nonsense"), std::nullopt);
}

}  // namespace
}  // namespace flux2
