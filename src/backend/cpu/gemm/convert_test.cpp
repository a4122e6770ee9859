#include "backend/cpu/gemm/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "tensor/blocks.h"

namespace flux2::gemm {
namespace {

void expect_same(float got, float want, int code) {
  if (std::isnan(want)) EXPECT_TRUE(std::isnan(got)) << code;
  else EXPECT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(want)) << code;
}

TEST(GemmConvert, EveryHalfAndEveryByte) {
  std::vector<f16> halves(65536);
  for (int i = 0; i < 65536; ++i) halves[static_cast<size_t>(i)].bits = static_cast<uint16_t>(i);
  std::vector<float> got(65536);
  convert(DType::F16, halves.data(), 0, 65536, got.data());
  for (int i = 0; i < 65536; ++i) expect_same(got[static_cast<size_t>(i)], to_float(halves[static_cast<size_t>(i)]), i);

  std::vector<uint8_t> bytes(256);
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  convert(DType::F8_E4M3, bytes.data(), 0, 256, got.data());
  for (int i = 0; i < 256; ++i) expect_same(got[static_cast<size_t>(i)], e4m3_to_float(static_cast<uint8_t>(i)), i);
  convert(DType::F8_E5M2, bytes.data(), 0, 256, got.data());
  for (int i = 0; i < 256; ++i) expect_same(got[static_cast<size_t>(i)], e5m2_to_float(static_cast<uint8_t>(i)), i);
}

TEST(GemmConvert, RoundsToNearestEven) {
  const std::vector<float> values = {1.0f,    1.00390625f, 1.01171875f, -1.00390625f, 3.3895314e38f,
                                     3.4e38f, INFINITY,    -0.0f,       1e-40f,       0.1f};
  std::vector<bf16> got(values.size()), stored(values.size());
  convert(DType::F32, values.data(), 0, static_cast<int64_t>(values.size()), got.data());
  store(values.data(), static_cast<int64_t>(values.size()), DType::BF16, stored.data());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(got[i].bits, to_bf16(values[i]).bits) << values[i];
    EXPECT_EQ(stored[i].bits, to_bf16(values[i]).bits) << values[i];
  }
  const float nan = std::bit_cast<float>(0x7f800001u);  // rounding its bits alone would make it infinite
  convert(DType::F32, &nan, 0, 1, got.data());
  EXPECT_TRUE(std::isnan(to_float(got[0])));
}

TEST(GemmConvert, BlocksCutAtBothEnds) {
  std::vector<BlockQ8_0> q8(3);
  std::vector<BlockQ4_0> q4(3);
  std::vector<float> want8, want4;
  for (size_t b = 0; b < 3; ++b) {
    const float scale = 0.25f * static_cast<float>(b + 1);
    q8[b].scale = q4[b].scale = to_f16(scale);
    for (int i = 0; i < 32; ++i) {
      q8[b].q[i] = static_cast<int8_t>(37 * i - 128 + static_cast<int>(b));
      want8.push_back(scale * static_cast<float>(q8[b].q[i]));
    }
    for (int i = 0; i < 16; ++i) q4[b].q[i] = static_cast<uint8_t>(29 * i + 5 * static_cast<int>(b));
    for (int i = 0; i < 32; ++i)
      want4.push_back(scale * static_cast<float>((i < 16 ? q4[b].q[i] & 15 : q4[b].q[i - 16] >> 4) - 8));
  }
  for (int start : {0, 1, 31, 32, 40})
    for (int count : {1, 3, 31, 32, 33, 56}) {
      std::vector<float> got(static_cast<size_t>(count) + 1, -7777.0f);
      convert(DType::Q8_0, q8.data(), start, count, got.data());
      for (int i = 0; i < count; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], want8[static_cast<size_t>(start + i)]);
      convert(DType::Q4_0, q4.data(), start, count, got.data());
      for (int i = 0; i < count; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], want4[static_cast<size_t>(start + i)]);
      EXPECT_EQ(got.back(), -7777.0f);
    }
}

// Every code with every scale that is a number, decoded with the same bits as everywhere else.
TEST(GemmConvert, BlocksOfEightAndFourBitFloats) {
  for (DType dtype : {DType::F8_128, DType::NVFP4}) {
    const DTypeInfo& d = info(dtype);
    const int64_t blocks = 96, elements = blocks * d.block_elements;
    std::vector<uint8_t> bytes(static_cast<size_t>(blocks * d.block_bytes));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 37 + i / 251);
    for (int64_t b = 0; b < blocks; ++b) {
      const float scale = 0.01f * static_cast<float>(b + 1);
      std::memcpy(&bytes[static_cast<size_t>(b * d.block_bytes)], &scale, sizeof scale);
    }
    std::vector<float> want(static_cast<size_t>(elements)), got(want.size());
    flux2::decode_blocks(dtype, bytes.data(), elements, want.data());
    convert(dtype, bytes.data(), 0, elements, got.data());
    for (size_t i = 0; i < want.size(); ++i) expect_same(got[i], want[i], static_cast<int>(i));
    for (int start : {1, 100, 128, 200})
      for (int count : {1, 27, 28, 128, 300}) {
        convert(dtype, bytes.data(), start, count, got.data());
        for (int i = 0; i < count; ++i) expect_same(got[static_cast<size_t>(i)], want[static_cast<size_t>(start + i)], i);
      }
  }
}

TEST(GemmConvert, NamesUnsupportedDtypes) {
  EXPECT_FALSE(is_convertible(DType::F64));
  EXPECT_FALSE(is_convertible(DType::I32));
  float out;
  const double in = 1;
  EXPECT_THROW(convert(DType::F64, &in, 0, 1, &out), Error);
}

}  // namespace
}  // namespace flux2::gemm
