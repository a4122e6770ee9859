#include "weights/round_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tensor/dtype.h"

namespace flux2 {
namespace {

// The nearest of all values by trying each; of two that are as near the one with an even code.
template <class Value>
int nearest(double x, int count, Value value) {
  int best = 0;
  for (int code = 1; code < count; ++code) {
    const double e = std::abs(value(code) - x), b = std::abs(value(best) - x);
    if (e < b || (e == b && code % 2 == 0)) best = code;
  }
  return best;
}

TEST(EncodeNvfp4, IsTheNearestOfAllCodes) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  constexpr int64_t kColumns = 256;
  for (int row = 0; row < 50; ++row) {
    std::vector<float> x(kColumns);
    float largest = 0;
    for (float& v : x) v = normal(random) * (row % 3 == 0 ? 100.0f : 1.0f), largest = std::max(largest, std::abs(v));
    const float global = nvfp4_global(2 * largest);  // some other row has the largest value
    std::vector<uint8_t> scales(kColumns / 16), codes(kColumns / 2);
    nvfp4_scales(x.data(), kColumns, global, scales.data());
    nvfp4_codes(x.data(), kColumns, global, scales.data(), codes.data());
    for (int64_t g = 0; g < kColumns / 16; ++g) {
      float most = 0;
      for (int64_t i = 0; i < 16; ++i) most = std::max(most, std::abs(x[static_cast<size_t>(16 * g + i)]));
      ASSERT_EQ(scales[static_cast<size_t>(g)],
                nearest(most / 6.0f / global, 127, [](int c) { return e4m3_to_float(static_cast<uint8_t>(c)); }));
      const float scale = e4m3_to_float(scales[static_cast<size_t>(g)]) * global;
      for (int64_t i = 16 * g; i < 16 * (g + 1); ++i) {
        const uint8_t byte = codes[static_cast<size_t>(i / 2)], code = i % 2 == 0 ? byte >> 4 : byte & 15;
        const double want = std::clamp(static_cast<double>(x[static_cast<size_t>(i)]) / scale, -6.0, 6.0);
        const double got = std::abs(static_cast<double>(kE2m1[code]) - want);
        const int best = nearest(std::abs(want), 8, [](int c) { return kE2m1[static_cast<size_t>(c)]; });
        ASSERT_NEAR(got, std::abs(kE2m1[static_cast<size_t>(best)] - std::abs(want)), 1e-6) << x[static_cast<size_t>(i)];
      }
    }
  }
}

TEST(EncodeNvfp4, TiesGoToEvenCodes) {
  // A scale of one: the largest is 6 and the global scale 1.
  std::vector<float> x = {6, 0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5, -0.25f, -0.75f, -5, 0, 0.5f, 1, -1.5f, 4};
  std::vector<uint8_t> scales(1), codes(8);
  nvfp4_scales(x.data(), 16, 1.0f, scales.data());
  EXPECT_EQ(e4m3_to_float(scales[0]), 1.0f);
  nvfp4_codes(x.data(), 16, 1.0f, scales.data(), codes.data());
  EXPECT_EQ(codes, (std::vector<uint8_t>{0x70, 0x22, 0x44, 0x66, 0x0a, 0xe0, 0x12, 0xb6}));
  // Nothing but zeros has no scale.
  std::fill(x.begin(), x.end(), 0.0f);
  nvfp4_scales(x.data(), 16, 0.0f, scales.data());
  nvfp4_codes(x.data(), 16, 0.0f, scales.data(), codes.data());
  EXPECT_EQ(scales[0], 0);
  EXPECT_EQ(codes, std::vector<uint8_t>(8));
}

}  // namespace
}  // namespace flux2
