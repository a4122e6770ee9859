#include "pipeline/noise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/error.h"
#include "tensor/dtype.h"
#include "tests/support/paths.h"
#include "weights/weight_source.h"

namespace flux2 {
namespace {

constexpr uint64_t kSeeds[] = {0, 42, 2147483653, 123456789012345};

int64_t ulps(float a, float b) { return std::abs(static_cast<int64_t>(std::bit_cast<int32_t>(a)) - std::bit_cast<int32_t>(b)); }

std::shared_ptr<const WeightSource> golden() { return open_weights(test::golden_folder() / "noise.safetensors"); }

TEST(Noise, CpuGeneratorOfPyTorch) {
  const auto file = golden();
  for (uint64_t seed : kSeeds) {
    const auto expected = file->open(fmt::format("cpu.f32.{}", seed)).to_floats();
    const auto mine = make_noise({}, seed, 128, 3, 5);
    ASSERT_EQ(mine.size(), expected.size());
    int64_t worst = 0;
    for (size_t i = 0; i < mine.size(); ++i) worst = std::max(worst, ulps(mine[i], expected[i]));
    EXPECT_EQ(worst, 0) << "seed " << seed;

    std::vector<float> rounded(expected.size());
    torch_cpu_normal_bf16(seed, rounded);
    EXPECT_EQ(rounded, file->open(fmt::format("cpu.bf16.{}", seed)).to_floats()) << "seed " << seed;
  }
}

TEST(Noise, CudaGeneratorOfPyTorch) {
  const auto file = golden();
  const NoiseSource source = parse_noise("torch-cuda:132x2048");
  double worst = 0;
  for (uint64_t seed : kSeeds)
    for (int size : {32, 64, 128}) {
      const auto mine = make_noise(source, seed, 128, size, size);
      const auto at = file->open(fmt::format("cuda.index.{}", size)).to_ints();
      const auto expected = file->open(fmt::format("cuda.f32.{}.{}", size, seed)).to_floats();
      for (size_t i = 0; i < at.size(); ++i)
        worst = std::max(worst, static_cast<double>(std::abs(mine[static_cast<size_t>(at[i])] - expected[i])));
      const auto head = file->open(fmt::format("cuda.f32head.{}.{}", size, seed)).to_floats();
      for (size_t i = 0; i < head.size(); ++i) worst = std::max(worst, static_cast<double>(std::abs(mine[i] - head[i])));
    }
  EXPECT_LE(worst, 2e-6);
}

TEST(Noise, GridKeepsTheMiddle) {
  const NoiseSource source = parse_noise("grid");
  const auto small = make_noise(source, 7, 128, 4, 6), large = make_noise(source, 7, 128, 8, 10);
  for (int64_t c : {0, 1, 77, 127})
    for (int64_t y = 0; y < 4; ++y)
      for (int64_t x = 0; x < 6; ++x)
        EXPECT_EQ(small[static_cast<size_t>((c * 4 + y) * 6 + x)], large[static_cast<size_t>((c * 8 + y + 2) * 10 + x + 2)]);
  double mean = 0, square = 0;
  for (float v : large) {
    mean += v;
    square += static_cast<double>(v) * v;
  }
  EXPECT_NEAR(mean / static_cast<double>(large.size()), 0.0, 0.05);
  EXPECT_NEAR(square / static_cast<double>(large.size()), 1.0, 0.05);
}

TEST(Noise, AVariationIsNoiseBetweenTwoSeeds) {
  const auto first = make_noise({}, 1, 128, 8, 8), second = make_noise({}, 2, 128, 8, 8);
  const auto mixed = [&](double strength) {
    std::vector<float> noise = first;
    mix_noise(noise, second, strength);
    return noise;
  };
  EXPECT_EQ(mixed(0), first);
  EXPECT_EQ(mixed(1), second);
  const auto product = [](const std::vector<float>& a, const std::vector<float>& b) {
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
    return sum / static_cast<double>(a.size());
  };
  double closeness = 1;
  for (double strength : {0.1, 0.3, 0.5, 0.9}) {
    const auto noise = mixed(strength);
    EXPECT_NEAR(product(noise, noise), 1, 0.05) << strength;  // a straight mix would lose energy: 0.5 at one half
    EXPECT_LT(product(noise, first), closeness) << strength;
    closeness = product(noise, first);
  }
  std::vector<float> itself = first;
  mix_noise(itself, first, 0.5);
  for (size_t i = 0; i < first.size(); ++i) ASSERT_FLOAT_EQ(itself[i], first[i]);
}

TEST(Noise, VariationsAreWrittenAsSeedAndStrength) {
  EXPECT_EQ(parse_variation("7:0.25"), (Variation{7, 0.25}));
  EXPECT_EQ(parse_variation(Variation{123, 0.1}.text()), (Variation{123, 0.1}));
  for (const char* bad :
       {"", "7", "7:", ":0.1", "7:1.5", "7:-0.1", "-1:0.1", "7:x", "7:0.1x", "9223372036854775808:0.1", "7:nan"})
    EXPECT_THROW(parse_variation(bad), Error) << bad;
}

TEST(Noise, Names) {
  EXPECT_EQ(parse_noise("torch-cpu").name(), "torch-cpu");
  EXPECT_EQ(parse_noise("torch-cuda:108x2048").name(), "torch-cuda:108x2048");
  EXPECT_EQ(parse_noise("torch-cuda").name(), "torch-cuda:132x2048");
  EXPECT_TRUE(parse_noise("torch-cuda").gpu_in_use);
  EXPECT_FALSE(parse_noise("torch-cuda:108x2048").gpu_in_use);
  for (const char* bad :
       {"", "cpu", "torch-cuda:", "torch-cuda:132", "torch-cuda:132x", "torch-cuda:0x2048", "torch-cuda:132x2048x"})
    EXPECT_THROW(parse_noise(bad), Error) << bad;
}

}  // namespace
}  // namespace flux2
