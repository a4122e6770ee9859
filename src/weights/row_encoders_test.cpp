#include "weights/row_encoders.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace flux2 {
namespace {

// Values of many magnitudes with the cases that need care: zeros of both signs, ties, both signs of the largest, subnormal
// numbers, infinities and NaN.
std::vector<std::vector<float>> rows() {
  std::vector<std::vector<float>> all;
  uint32_t state = 5;
  const auto random = [&] { return static_cast<float>((state = state * 1664525u + 1013904223u) >> 8) * 0x1p-23f - 1.0f; };
  for (const float spread : {1.0f, 0.05f, 3e4f, 1e-7f, 1e-38f, 1e-42f, 1e38f})
    for (int repeat = 0; repeat < 20; ++repeat) {
      std::vector<float> row(256);
      for (float& v : row) v = random() * spread;
      all.push_back(row);
      for (float& v : row) v = std::round(random() * 9) * spread / 2;  // ties, and a largest value of both signs
      all.push_back(row);
    }
  all.emplace_back(256, 0.0f);
  all.emplace_back(256, -0.0f);
  for (const float odd : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), NAN}) {
    all.push_back(all.front());
    all.back()[77] = odd;
  }
  return all;
}

template <class T, class Encode>
std::vector<T> encoded(size_t count, const Encode& encode) {
  std::vector<T> out(count, T{1});
  encode(out.data());
  return out;
}

TEST(RowEncoders, EveryFormGivesTheSameBytes) {
  const RowEncoders *fast = avx2_row_encoders(), &plain = portable_row_encoders();
  if (!fast) GTEST_SKIP() << "this machine has one form";
  for (const auto& row : rows()) {
    const float* x = row.data();
    for (const int64_t count : {256, 255, 33, 7, 1, 0}) {
      const float largest = plain.largest_magnitude(x, count), other = fast->largest_magnitude(x, count);
      EXPECT_EQ(std::memcmp(&largest, &other, sizeof largest), 0);
      const auto n = static_cast<size_t>(count);
      for (const float range : {127.0f, 448.0f}) {
        const float factor = largest > 0 ? range / largest : 0.0f;
        if (range == 127.0f)
          EXPECT_EQ(encoded<int8_t>(n, [&](int8_t* out) { plain.to_int8(x, count, factor, out); }),
                    encoded<int8_t>(n, [&](int8_t* out) { fast->to_int8(x, count, factor, out); }));
        else
          EXPECT_EQ(encoded<uint8_t>(n, [&](uint8_t* out) { plain.to_e4m3(x, count, factor, out); }),
                    encoded<uint8_t>(n, [&](uint8_t* out) { fast->to_e4m3(x, count, factor, out); }));
      }
    }
    EXPECT_EQ(encoded<uint8_t>(8 * 34, [&](uint8_t* out) { plain.to_q8_0(x, 256, out); }),
              encoded<uint8_t>(8 * 34, [&](uint8_t* out) { fast->to_q8_0(x, 256, out); }));
    EXPECT_EQ(encoded<uint8_t>(8 * 18, [&](uint8_t* out) { plain.to_q4_0(x, 256, out); }),
              encoded<uint8_t>(8 * 18, [&](uint8_t* out) { fast->to_q4_0(x, 256, out); }));
  }
}

TEST(RowEncoders, EveryFormWidensEveryBf16Value) {
  std::vector<uint8_t> bytes(1 + 2 * 65536);  // read from an odd address
  for (size_t i = 0; i < 65536; ++i)
    bytes[1 + 2 * i] = static_cast<uint8_t>(i & 0xff), bytes[2 + 2 * i] = static_cast<uint8_t>(i >> 8);
  for (const RowEncoders* form : {&portable_row_encoders(), avx2_row_encoders()}) {
    if (!form) continue;
    for (const size_t count : {size_t{65536}, size_t{65531}, size_t{3}}) {
      std::vector<float> out(count);
      form->widen_bf16(bytes.data() + 1, static_cast<int64_t>(count), out.data());
      for (size_t i = 0; i < count; ++i) {
        uint32_t bits = 0;
        std::memcpy(&bits, &out[i], sizeof bits);
        ASSERT_EQ(bits, i << 16);
      }
    }
  }
}

}  // namespace
}  // namespace flux2
