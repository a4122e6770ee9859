#include "base/counted_random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

namespace flux2 {
namespace {

// The check values of the training specification, part 2, section 5.
TEST(CountedRandom, GivesTheSpecifiedNormals) {
  std::vector<float> first(6);
  CountedRandom(42, 1, 0).normals(first);
  EXPECT_FLOAT_EQ(first[0], -1.6359778f);
  EXPECT_FLOAT_EQ(first[1], 0.0905357f);
  EXPECT_FLOAT_EQ(first[2], -1.5859388f);
  EXPECT_FLOAT_EQ(first[3], 0.9147608f);
  std::vector<float> seventh(16);
  const CountedRandom random(42, 1, 7);
  random.normals(seventh);
  EXPECT_FLOAT_EQ(seventh[12], -0.4311001f);
  EXPECT_FLOAT_EQ(seventh[13], -0.1506544f);
  EXPECT_FLOAT_EQ(seventh[14], -0.2587370f);
  EXPECT_FLOAT_EQ(seventh[15], 0.7912405f);
  for (size_t i = 0; i < seventh.size(); ++i) EXPECT_EQ(static_cast<float>(random.normal(i)), seventh[i]);
}

// Compares with the functions of the standard library. 4003 values do not fill the last group of values that are drawn together.
TEST(CountedRandom, NormalsAreThoseOfBoxAndMuller) {
  const auto unit = [](uint32_t word) { return (word + 0.5) * 0x1p-32; };
  std::vector<float> values(4003);
  for (uint64_t index : {0ull, 5ull, 1ull << 40}) {
    const CountedRandom random(11, 3, index);
    random.normals(values);
    for (size_t i = 0; i < values.size(); ++i) {
      const auto words = random.words(static_cast<uint32_t>(i / 4));
      const size_t pair = i % 4 / 2 * 2;
      const double radius = std::sqrt(-2 * std::log(unit(words[pair]))), angle = 2 * std::numbers::pi * unit(words[pair + 1]);
      ASSERT_NEAR(random.normal(i), radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle)), 1e-13) << i;
      ASSERT_EQ(values[i], static_cast<float>(random.normal(i))) << i;
    }
  }
}

TEST(CountedRandom, UniformsAreInsideTheUnitInterval) {
  const CountedRandom random(7, 2, 3);
  double sum = 0;
  for (uint64_t i = 0; i < 10000; ++i) {
    const double u = random.uniform(i);
    ASSERT_GT(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.02);
}

TEST(CountedRandom, ShuffleKeepsTheValuesAndRepeats) {
  std::vector<int> a(100), b(100);
  std::iota(a.begin(), a.end(), 0);
  b = a;
  CountedRandom(1, 7, 0).shuffle(std::span(a));
  CountedRandom(1, 7, 0).shuffle(std::span(b));
  EXPECT_EQ(a, b);
  EXPECT_FALSE(std::is_sorted(a.begin(), a.end()));
  std::sort(a.begin(), a.end());
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace flux2
