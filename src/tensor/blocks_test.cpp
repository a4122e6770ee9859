#include "tensor/blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace flux2 {
namespace {

struct Expected {
  DType dtype;
  int d_at, second_at;  // where the half floats lie; −1: there is no second one
  std::map<int, float> values;
  float sum;
};

// One block of bytes 37·i + 11, its half floats set to 1 and 0.5.
TEST(Blocks, DecodeTheKnownBlock) {
  const std::vector<Expected> table = {
      {DType::Q4_0, 0, -1, {{0, -3}, {1, 2}, {15, -8}, {16, -3}, {17, -1}, {31, 0}}, -21},
      {DType::Q4_1, 0, 2, {{0, 15.5f}, {1, 4.5f}, {15, 10.5f}, {16, 9.5f}, {17, 12.5f}, {31, 12.5f}}, 261},
      {DType::Q5_0, 0, -1, {{0, 9}, {1, -2}, {15, -12}, {16, 14}, {17, 0}, {31, 1}}, 15},
      {DType::Q5_1, 0, 2, {{0, 19.5f}, {1, 24.5f}, {15, 30.5f}, {16, 19.5f}, {17, 5.5f}, {31, 5.5f}}, 521},
      {DType::Q8_0, 0, -1, {{0, 85}, {1, 122}, {15, -128}, {16, -91}, {17, -54}, {31, -48}}, -176},
      {DType::IQ4_NL, 0, -1, {{0, -35}, {1, 25}, {15, -127}, {16, -35}, {17, -10}, {31, 1}}, -257},
      {DType::Q2_K, 80, 82, {{0, 33}, {1, 0}, {17, -1.5f}, {33, -2.5f}, {100, 20}, {200, 8}, {255, 4.5f}}, 2059},
      {DType::Q3_K, 108, -1, {{0, 81}, {1, -108}, {17, 128}, {33, 44}, {100, 0}, {200, 25}, {255, 42}}, 958},
      {DType::Q4_K, 0, 2, {{0, 315.5f}, {1, -25.5f}, {17, -25.5f}, {33, 20}, {100, 95}, {200, 138.5f}, {255, 48.5f}}, 54440},
      {DType::Q5_K, 0, 2, {{0, 811.5f}, {1, -25.5f}, {17, -25.5f}, {33, -4}, {100, 235}, {200, 138.5f}, {255, 108.5f}}, 116216},
      {DType::Q6_K, 208, -1, {{0, -1431}, {1, 1696}, {17, 512}, {33, -672}, {100, 2523}, {200, 1089}, {255, -60}}, 4612},
      {DType::IQ4_XS, 0, -1, {{0, 65}, {1, -1}, {17, 35}, {33, -7}, {100, 40}, {200, 1140}, {255, -16}}, -11005},
  };
  for (const Expected& e : table) {
    SCOPED_TRACE(name_of(e.dtype));
    std::vector<uint8_t> block(static_cast<size_t>(info(e.dtype).block_bytes));
    for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<uint8_t>(37 * i + 11);
    const auto set = [&](int at, float v) {
      const f16 h = to_f16(v);
      std::memcpy(block.data() + at, &h, 2);
    };
    set(e.d_at, 1.0f);
    if (e.second_at >= 0) set(e.second_at, 0.5f);
    std::vector<float> values(static_cast<size_t>(info(e.dtype).block_elements));
    decode_blocks(e.dtype, block.data(), static_cast<int64_t>(values.size()), values.data());
    for (const auto& [i, v] : e.values) EXPECT_EQ(values[static_cast<size_t>(i)], v) << i;
    EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0.0f), e.sum);
  }
}

TEST(Blocks, DecodeConsecutiveBlocksAtAnyAddress) {
  for (DType dtype : {DType::Q5_0, DType::Q6_K}) {
    const DTypeInfo& d = info(dtype);
    std::vector<uint8_t> bytes(static_cast<size_t>(3 * d.block_bytes + 1));
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(61 * i + 5) & 0x3b;  // no NaN scales
    const size_t n = static_cast<size_t>(d.block_elements);
    std::vector<float> all(3 * n), third(n);
    decode_blocks(dtype, bytes.data() + 1, static_cast<int64_t>(3 * n), all.data());
    decode_blocks(dtype, bytes.data() + 1 + 2 * d.block_bytes, static_cast<int64_t>(n), third.data());
    EXPECT_EQ(std::vector<float>(all.end() - static_cast<ptrdiff_t>(n), all.end()), third);
  }
  float out;
  EXPECT_THROW(decode_blocks(DType::F32, &out, 1, &out), Error);
}

TEST(Blocks, ScalesRoundTrip) {
  ScalesAndMins s;
  for (int i = 0; i < 8; ++i) s.scale[i] = static_cast<uint8_t>(9 * i), s.min[i] = static_cast<uint8_t>(63 - 7 * i);
  uint8_t packed[12];
  pack_scales(s, packed);
  const ScalesAndMins back = unpack_scales(packed);
  EXPECT_EQ(std::memcmp(&back, &s, sizeof s), 0);
  std::array<int8_t, 16> q3;
  for (size_t i = 0; i < 16; ++i) q3[i] = static_cast<int8_t>(-32 + static_cast<int>(i) * 63 / 15);
  pack_q3_scales(q3, packed);
  EXPECT_EQ(unpack_q3_scales(packed), q3);
}

}  // namespace
}  // namespace flux2
